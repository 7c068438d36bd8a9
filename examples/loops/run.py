"""Learns how to distribute, vectorise and unroll loops: a plug-in for clang-22, two agents with one
reward.

python run.py            # all of it: 1300 compilations
python run.py --quick    # a smoke test in a few seconds
"""

import argparse
import json
import math
import re
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared
from policy import ACTIONS, Experience, choose, observe

from shmbridge.training import Corpus, Task, collect, relative_reduction
from shmbridge.training.scores import printed

HERE = Path(__file__).parent.absolute()
RESULTS, BUILD = HERE / "results", HERE / "build"
FLAGS = "-O3 -march=x86-64-v3 -ffast-math"
REMARKS = "-Rpass=loop-(distribute|vectorize|unroll) -fno-caret-diagnostics -Wno-pass-failed"
COMPILE = (
    f"clang-22 {FLAGS} -gline-tables-only -static -Wl,--strip-debug -fpass-plugin={BUILD}/shmbridge-loops.so {REMARKS} "
    f"{{module}} {BUILD}/main.o"
)
COUNT = "valgrind --tool=callgrind --toggle-collect=kernel --callgrind-out-file=/dev/null {output}"


def build():
    """Builds the plug-in, and the part of the kernels' programs that does not ask."""
    shared.build(HERE, BUILD, shared.llvm())
    shared.said("clang-22", *FLAGS.split(), "-c", HERE / "kernels/main.c", "-o", BUILD / "main.o")


def reward(outcome, baseline):
    """The part of -O3's instructions that the kernel saves, at least -1; -1 if its result
    differs."""
    if not math.isclose(outcome.scores["sum"], baseline["sum"], rel_tol=1e-5):
        return -1.0
    return max(-1.0, relative_reduction(outcome, baseline))


# ---- Policies ----


def policy_of(decide):
    """decide(agent, x): the number of an action. The episode keeps agent, x and number."""

    def policy(batch):
        agents, xs = batch["agent"], [observe(request) for request in batch.requests]
        numbers = [decide(agent, x) for agent, x in zip(agents, xs, strict=True)]
        advice = [ACTIONS[agent][number] for agent, number in zip(agents, numbers, strict=True)]
        return advice, {"x": xs, "number": numbers}

    return policy


def at_random(seed):
    random = np.random.default_rng(seed)
    return policy_of(lambda agent, x: int(random.integers(len(ACTIONS[agent]))))


def greedy(experience):
    return policy_of(lambda agent, x: choose(experience, agent, x))


def learn(task, modules, rounds, seed):
    """A bandit's experience after this many compilations of each module. A failed compilation
    counts -1."""
    random, experience = np.random.default_rng(seed), Experience()
    policy = policy_of(lambda agent, x: choose(experience, agent, x, random))
    for _ in range(rounds):
        for episode in collect(policy, task, modules, reward=reward):
            steps = (episode.features["agent"], episode.extras["x"], episode.extras["number"])
            for agent, x, number in zip(*steps, strict=True):
                experience.add(agent, x, number, np.nan_to_num(episode.reward, nan=-1.0))
    return experience


def rewards_of(policy, task, modules):
    """By module's name: the reward of one compilation, and its episode."""
    episodes = {e.module.name: e for e in collect(policy, task, modules, reward=reward)}
    return {name: (float(np.nan_to_num(e.reward, nan=-1.0)), e) for name, e in episodes.items()}


# ---- LLVM's remarks ----


def obeyed(episode):
    """Counts (advice, whether LLVM's remarks report that it was followed) over the loops of a
    compilation."""
    remark = r":(\d+):\d+: remark: (?:completely )?(distributed|vectorized|unrolled) loop"
    done = set(re.findall(remark, episode.outcome.stderr))
    found = Counter()
    steps = (episode.features["agent"], episode.features["line"], episode.advice["advice"])
    for agent, line, advice in zip(*steps, strict=True):
        if agent == "distribute":
            asked = ["distributed"] * int(advice)
        else:
            asked = ["vectorized"] * bool(advice[0] > 1) + ["unrolled"] * bool(advice[2] > 1)
        found.update((kind, (str(line), kind) in done) for kind in asked)
    return found


# ---- The whole experiment ----


def spread(values):
    return f"{np.median(values):+6.1%} ({min(values):+.1%} to {max(values):+.1%})"


def mean(found, modules):
    """Instructions compared with -O3; negative: fewer."""
    return -float(np.mean([found[module.name][0] for module in modules]))


def run(quick):
    RESULTS.mkdir(exist_ok=True)
    build()
    kernels = [path for path in sorted((HERE / "kernels").glob("*.c")) if path.stem != "main"]
    train, test = Corpus.from_sources(*kernels).split(0.35)
    seeds, rounds = range(3), 8
    if quick:
        train, test, seeds, rounds = train[:2], test[:2], range(1), 2
    print("trained on:", *(module.path.stem for module in train))
    print("held out:  ", *(module.path.stem for module in test), flush=True)
    scores = {
        "instructions": printed(COUNT, r"Collected : (\d+)"),
        "sum": printed("{output}", "sum (.*)"),
    }
    task = Task(f"{COMPILE} -o {{output}}", scores=scores)

    plain = {module.name: task.baseline(module) for module in [*train, *test]}

    rows, refusals, kept = [], Counter(), {}
    for seed in seeds:
        since = time.time()
        experience = learn(task, train, rounds, seed)
        learnt = rewards_of(greedy(experience), task, [*train, *test])
        draws = [rewards_of(policy, task, [*train, *test]) for policy in [at_random(seed)] * rounds]
        for draw in draws:
            for _, episode in draw.values():
                refusals.update(obeyed(episode))
        best = {name: max((d[name] for d in draws), key=lambda each: each[0]) for name in learnt}
        row = {"seed": seed, "seconds": time.time() - since}
        for side, modules in (("train", train), ("test", test)):
            row[f"{side} learnt"] = mean(learnt, modules)
            row[f"{side} random"] = float(np.mean([mean(draw, modules) for draw in draws]))
            row[f"{side} best of random"] = mean(best, modules)
        rows.append(row)
        print(
            f"seed {seed}: {rounds * len(train)} compilations to learn and "
            f"{rounds * len(draws[0])} at random in {row['seconds']:.0f} s",
            flush=True,
        )
        if not kept:  # the first seed's are reported separately
            kept = {"learnt": learnt, "best of random": best}
            experience.save(RESULTS / "experience.npz")

    print(
        "\nInstructions compared with -O3, negative: fewer (mean of the kernels; median and range of seeds)"
    )
    print(f"{'':36}{'trained on':>26}{'held out':>26}")
    for name, what in (
        ("learnt", "learnt, one compilation of each"),
        ("random", "random, one compilation of each"),
        ("best of random", f"random search, the best of {rounds}"),
    ):
        sides = (spread([row[f"{side} {name}"] for row in rows]) for side in ("train", "test"))
        print(f"{what:36}" + "".join(f"{text:>26}" for text in sides))

    print("\nRandom advice that LLVM followed, over all loops")
    for kind in ("distributed", "vectorized", "unrolled"):
        asked = refusals[kind, True] + refusals[kind, False]
        print(f"{kind:12}{refusals[kind, True]:6} of {asked}")

    print("\nHeld-out kernels, seed 0: instructions compared with -O3")
    table = []
    for module in test:
        row = {"kernel": module.path.stem, "-O3": plain[module.name]["instructions"]}
        row |= {name: -found[module.name][0] for name, found in kept.items()}
        print(f"{row['kernel']:16}", *(f"{name} {row[name]:+.0%}" for name in kept), sep="  ")
        table.append(row)
    refused = {f"{kind} {'done' if done else 'refused'}": n for (kind, done), n in refusals.items()}
    results = {"rows": rows, "advice": refused, "held out": table}
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    run(parser.parse_args().quick)

"""Learns how to distribute, vectorise and unroll loops: a plug-in for clang-22, two agents with one
reward.

python run.py            # all of it: 1300 compilations
python run.py --quick    # a smoke test in a few seconds
"""

import argparse
import json
import math
import re
import secrets
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
from policy import ACTIONS, Experience, choose, observe

from shmbridge import Host
from shmbridge.training import Corpus, Module, Task, collect, relative_reduction
from shmbridge.training.scores import printed, run_time

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
    llvm = said("llvm-config-22", "--cmakedir")
    bridge = said("shmbridge", "config", "--cmakedir")
    said("cmake", "-S", HERE, "-B", BUILD, f"-DLLVM_DIR={llvm}", f"-Dshmbridge_DIR={bridge}")
    said("cmake", "--build", BUILD)
    said("clang-22", *FLAGS.split(), "-c", HERE / "kernels/main.c", "-o", BUILD / "main.o")


def said(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


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


# ---- Time ----


def program(module, episode, path):
    """Compiles again with the same advice and keeps the file. episode: None for plain -O3."""
    steps = iter(episode.advice["advice"] if episode else ())
    with Host(f"loops-{secrets.token_hex(4)}") as host, host.start(lambda request: next(steps)):
        kept = Module(module.name, module.path, ("-o", str(path)))
        outcome = Task(COMPILE).run(kept, host.url if episode else None)
    assert outcome.ok, outcome
    return path


def measure(programs, turns):
    """float64[kernels, programs, turns]: CPU seconds, alternating. programs: for each kernel, its
    paths and how often to run it."""
    seconds = np.empty((len(programs), len(programs[0][0]), turns))
    for turn in range(turns):
        for i, (paths, repeats) in enumerate(programs):
            for j, path in enumerate(paths):
                seconds[i, j, turn] = run_time(str(repeats))(path)
    return seconds


def interval(values):
    """The median, and its 95 % bootstrap interval."""
    picks = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    return float(np.median(values)), *np.percentile(np.median(values[picks], axis=1), [2.5, 97.5])


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
    seeds, rounds, turns = range(3), 8, 20
    if quick:
        train, test, seeds, rounds, turns = train[:2], test[:2], range(1), 2, 2
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

    programs = []
    for module in test:
        paths = [program(module, None, BUILD / f"{module.path.stem}-O3")]
        for name, found in kept.items():
            path = BUILD / f"{module.path.stem}-{name.replace(' ', '-')}"
            paths.append(program(module, found[module.name][1], path))
        instructions = plain[module.name]["instructions"]
        programs.append((paths, int((1e6 if quick else 2e8) / instructions)))
    seconds = measure(programs, turns)
    print(f"\nHeld-out kernels, seed 0, compared with -O3: instructions, and time of {turns} runs")
    print(
        f"{'kernel':16}{'-O3':>9}{'learnt':>8}{'best of random':>16}{'time, learnt':>24}{'time, best of random':>26}"
    )
    table = []
    for module, each in zip(test, seconds, strict=True):
        was = plain[module.name]["instructions"]
        line = {"kernel": module.path.stem, "-O3": was}
        text = f"{module.path.stem:16}{was:9.0f}"
        for name, width in (("learnt", 8), ("best of random", 16)):
            line[name] = -kept[name][module.name][0]
            text += f"{line[name]:+{width}.0%}"
        for name, j, width in (("learnt", 1, 24), ("best of random", 2, 26)):
            middle, low, high = line[f"time, {name}"] = interval(each[j] / each[0] - 1)
            text += f"{f'{middle:+.0%} ({low:+.0%} to {high:+.0%})':>{width}}"
        table.append(line)
        print(text)
    for name in ("learnt", "best of random"):
        ratios = [1 + line[f"time, {name}"][0] for line in table]
        print(f"time, {name}: {np.exp(np.mean(np.log(ratios))) - 1:+.1%} in the geometric mean")
    refused = {f"{kind} {'done' if done else 'refused'}": n for (kind, done), n in refusals.items()}
    results = {"rows": rows, "advice": refused, "held out": table}
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    begin = time.time()
    run(parser.parse_args().quick)
    print(f"\n{time.time() - begin:.0f} s; results/results.json has all figures")


if __name__ == "__main__":
    main()

"""Learns to allocate registers: three agents of a plug-in for clang-22, with one reward.

python run.py            # all of it: 1700 compilations
python run.py --quick    # a smoke test in a few seconds
"""

import argparse
import itertools
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared
from policy import FEATURES, PLACE, RANGE, REGISTER, SIZE, advise, parts, textbook

from shmbridge.training import Corpus, Task, candidate_rewards

HERE = Path(__file__).parent.absolute()
RESULTS, BUILD = HERE / "results", HERE / "build"
PLUGIN = f"-fpass-plugin={BUILD}/shmbridge-regalloc.so"
REMARKS = "-fsave-optimization-record -foptimization-record-file={folder}/remarks.yaml"
COMPILE = f"clang-22 -O2 -c {{module}} -o {{output}} {PLUGIN} {REMARKS}"
SIGMA = 0.5


def cost(output):
    """The instructions that the allocator adds, each as often as LLVM estimates that it runs."""
    found = re.findall(r"Cost: +'(.*?)'", output.with_name("remarks.yaml").read_text())
    return sum(map(float, found))


def task():
    only = "-foptimization-record-passes=shmbridge-regalloc"
    return Task(f"{COMPILE} {only}", scores={"cost": cost})


def baselines(modules, allocator):
    """By module's name: the cost of one of LLVM's own allocators."""
    os.environ["REGALLOC_WITHOUT_MODEL"] = allocator
    try:
        plain = task()
        return {module.name: plain.baseline(module)["cost"] for module in modules}
    finally:
        del os.environ["REGALLOC_WITHOUT_MODEL"]


def search(modules, basic, generations, candidates, seed, learns):
    """The weights that are best on the modules: OpenAI's evolution strategy, with mirrored noise and
    ranks; not learns: random search, which stays where it begins. A candidate counts the mean of
    log(cost / basic's); a failed compilation counts 1."""

    def reward(outcome, _baseline):
        return float(-np.log(max(outcome.scores["cost"], 1) / basic[outcome.module]))

    def tried(weights):
        rewards = candidate_rewards(
            lambda batch, rows: advise(batch, weights[rows]),
            len(weights),
            asks,
            modules,
            reward=reward,
        )
        means = np.nan_to_num(rewards, nan=-1.0).mean(axis=1)
        if means.max() > best[0]:
            best[:] = [means.max(), weights[means.argmax()]]
        return means

    asks, random, center, best = task(), np.random.default_rng(seed), textbook(), [-np.inf, None]
    tried(center[None])
    for _ in range(generations):
        noise = random.standard_normal((candidates // 2, SIZE))
        noise = np.concatenate([noise, -noise])
        ranks = tried(center + SIGMA * noise).argsort().argsort() / (candidates - 1) - 0.5
        up = (ranks @ noise) / np.linalg.norm(ranks @ noise) * np.sqrt(SIZE)
        center = center + learns * SIGMA / 2 * up
        print(f"seed {seed}: {best[0]:.3f}", flush=True)
    tried(center[None])
    return best[1]


def costs(weights, modules):
    """By module's name: the cost with these weights."""
    found = {}

    def keep(outcome, _baseline):
        found[outcome.module] = outcome.scores["cost"]
        return 0.0

    candidate_rewards(
        lambda batch, rows: advise(batch, weights[None][rows]), 1, task(), modules, reward=keep
    )
    return found


def compared(found, basic, modules):
    """The change of the cost: geometric mean over modules."""
    ratios = [max(found[m.name], 1) / max(basic[m.name], 1) for m in modules]
    return float(np.exp(np.log(ratios).mean()) - 1)


def save_onnx(weights, folder):
    """A model for each agent; the URL of all of them."""
    its, sizes = (
        parts(weights),
        {"task": (len(RANGE),), "colour": (64, len(REGISTER)), "split": (8, len(PLACE))},
    )
    for agent, shape in sizes.items():
        nodes = [
            ("MatMul", f"{FEATURES[agent]} weights", "scores"),
            ("Where", "action_mask scores least", "allowed"),
            ("ArgMax", "allowed", "advice", {"axis": 0, "keepdims": 0}),
        ]
        mask = 3 if agent == "task" else shape[0]
        inputs = {FEATURES[agent]: ("float32", shape), "action_mask": ("bool", (mask,))}
        constants = {"weights": np.float32(its[agent]), "least": np.float32(-1e30)}
        shared.save_onnx(
            folder / f"{agent}.onnx", nodes, inputs, {"advice": ("int64", ())}, constants
        )
    return "onnx://?" + "&".join(f"agent.{agent}={folder}/{agent}.onnx" for agent in sizes)


def run(quick):
    RESULTS.mkdir(exist_ok=True)
    shared.build(HERE, BUILD, shared.llvm())
    train, test = Corpus.from_sources(*sorted((HERE / "kernels").glob("*.c"))).split(0.55)
    seeds, generations, candidates = range(3), 4, 10
    if quick:
        train, test, seeds, generations, candidates = train[:2], test[:2], range(1), 1, 4
    print("trained on:", *(module.path.stem for module in train))
    print("held out:  ", *(module.path.stem for module in test), flush=True)
    every = [*train, *test]
    basic, greedy = baselines(every, "basic"), baselines(every, "greedy")
    rows = [{"policy": "greedy", "costs": greedy}]
    rows.append({"policy": "textbook", "costs": costs(textbook(), every)})
    for name, seed in itertools.product(("random search", "learnt"), seeds):
        since = time.time()
        weights = search(train, basic, generations, candidates, seed, name == "learnt")
        row = {"policy": f"{name}, seed {seed}", "weights": weights.tolist()}
        rows.append(row | {"costs": costs(weights, every), "seconds": time.time() - since})
    print(
        "\nAdded instructions compared with LLVM's basic allocator (geometric mean of the kernels)"
    )
    for row in rows:
        sides = {
            "train": compared(row["costs"], basic, train),
            "test": compared(row["costs"], basic, test),
        }
        row.update(sides)
        print(
            f"{row['policy']:22} trained on {sides['train']:+7.1%}  held out {sides['test']:+7.1%}"
        )
    chosen = min(rows[-len(seeds) :], key=lambda row: row["train"])
    (RESULTS / "weights.json").write_text(json.dumps(chosen["weights"]))
    (RESULTS / "results.json").write_text(json.dumps({"basic": basic, "rows": rows}, indent=1))
    print("as ONNX models:", save_onnx(np.array(chosen["weights"]), RESULTS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    run(parser.parse_args().quick)

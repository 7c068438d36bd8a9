"""Teaches stock gcc 12 how often to unroll loops, deploys the model as machine code, and prints
results.

    python run.py [--quick] [--seeds N] [--rounds N]

README.md explains the comparison.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared

from shmbridge.training import Corpus, Module, Task, candidate_rewards, collect, relative_reduction
from shmbridge.training.scores import Score, run_instructions, text_size

HERE = Path(__file__).parent
FACTORS = ["gcc decides", "1", "2", "4", "8"]  # as in unroll.cc
FEATURES = 11
HELD_OUT, SPLIT = 0.4, 1  # which part of the kernels, and the split's seed
QUICK = {"sum", "list", "insertion", "histogram", "count", "prefix"}


def once(score: Score) -> Score:
    """The same program needs no second run: it executes the same instructions."""
    known: dict[bytes, float] = {}

    def scored(path: Path) -> float:
        key = hashlib.sha256(path.read_bytes()).digest()
        if key not in known:
            known[key] = score(path)
        return known[key]

    return scored


def kernels(quick: bool) -> tuple[Corpus, Corpus]:
    """The training and held-out modules."""
    source = HERE / "kernels.c"
    names = re.findall(r"^LOOP\((\w+)\)", source.read_text(), re.MULTILINE)
    return Corpus(
        Module(name, source, (f"-DKERNEL={name}",)) for name in names if not quick or name in QUICK
    ).split(HELD_OUT, seed=SPLIT)


def logits(weights: Any, features: Any) -> Any:
    """float64[questions, 5], of weights[..., 12, 5] and features[questions, 11]: a linear model."""
    return np.einsum("qf,...fa->qa" if weights.ndim == 2 else "qf,qfa->qa", ones(features), weights)


def ones(features: Any) -> Any:
    return np.insert(features, 0, 1, axis=1)


def learn(task: Task, train: Sequence[Module], rounds: int, seed: int) -> Any:
    """REINFORCE: actions better than the kernel's mean so far become likelier. Returns weights[12,
    5]."""
    random, weights = np.random.default_rng(seed), np.zeros((1 + FEATURES, len(FACTORS)))
    rewards: dict[str, list[float]] = defaultdict(list)

    def policy(batch: Any) -> Any:
        x = batch["features"].copy()
        p = np.exp(logits(weights, x) - logits(weights, x).max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        actions = (p.cumsum(axis=1) < random.random((len(p), 1))).sum(axis=1)
        return np.minimum(actions, len(FACTORS) - 1), {"x": x, "p": p}

    for _ in range(rounds):
        step = np.zeros_like(weights)
        for episode in collect(policy, task, train):
            known = rewards[episode.module.name]
            known.append(episode.reward)
            better = episode.reward - np.mean(known)
            x, p = ones(episode.extras["x"]), episode.extras["p"]
            step += better * x.T @ (np.eye(len(FACTORS))[episode.advice["advice"]] - p)
        weights += step
    return weights


def search(task: Task, train: Sequence[Module], rounds: int, seed: int) -> Any:
    """Random search: the best on the training kernels of `rounds` models with random weights."""
    weights = np.random.default_rng(seed).standard_normal((rounds, 1 + FEATURES, len(FACTORS)))
    return weights[test(task, train, weights).mean(axis=1).argmax()]


def test(task: Task, modules: Sequence[Module], weights: Any) -> Any:
    """Rewards of models: float64[models, modules]."""

    def policy(batch: Any, rows: Any) -> Any:
        return logits(weights[rows], batch["features"]).argmax(axis=1)

    return candidate_rewards(policy, len(weights), task, modules)


def constant(choice: int) -> Any:
    """The model that always chooses the same."""
    weights = np.zeros((1 + FEATURES, len(FACTORS)))
    weights[0, choice] = 1
    return weights


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a smoke test of about ten seconds")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    seeds, rounds = args.seeds or (1 if args.quick else 3), args.rounds or (3 if args.quick else 20)
    start = time.monotonic()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    print("building the plug-in")
    shared.build(HERE, HERE / "build", "-DCMAKE_CXX_COMPILER=g++-12")
    flags, scores = (
        ["-O2", "{module}", "-o", "{output}"],
        {
            "instructions": once(run_instructions()),
            "text": text_size,
        },
    )
    task = Task(
        ["gcc-12", f"-fplugin={HERE / 'build' / 'shmbridge-gcc.so'}", *flags], scores=scores
    )
    plain, unrolls = (
        Task(["gcc-12", *more, *flags], scores=scores) for more in ([], ["-funroll-loops"])
    )
    train, held_out = kernels(args.quick)
    print(
        f"training: {', '.join(m.name for m in train)}\nheld out: {', '.join(m.name for m in held_out)}"
    )
    print(f"a training: {rounds} x {len(train)} compilations; random search: as many")

    own = [relative_reduction(unrolls.run(m), plain.baseline(m)) for m in held_out]
    always = np.array([constant(i) for i in range(len(FACTORS))])
    best = int(test(task, train, always).mean(axis=1).argmax())
    table: dict[str, list[Any]] = {
        "gcc -O2 -funroll-loops": [own],
        f"always {FACTORS[best]}, the best on the training kernels": [
            test(task, held_out, always[[best]])[0].tolist()
        ],
    }
    ways: dict[str, Callable[..., Any]] = {"random search": search, "REINFORCE": learn}
    models: dict[str, list[Any]] = {}
    took: dict[str, float] = {}
    for way, train_with in ways.items():
        began = time.monotonic()
        models[way] = [train_with(task, train, rounds, seed) for seed in range(seeds)]
        took[way] = (time.monotonic() - began) / seeds
        table[way] = test(task, held_out, np.array(models[way])).tolist()

    print(
        f"\ninstructions compared with gcc -O2, mean of {len(held_out)} held-out kernels; [range] of {seeds} seeds"
    )
    for name, rows in table.items():
        means = np.mean(rows, axis=1)
        spread = (
            f"[{-max(means):+6.1%}, {-min(means):+6.1%}]  {took[name]:.0f} s a training"
            if name in took
            else ""
        )
        print(f"  {name:48} {-means.mean():+6.1%}  {spread}")
    for i, module in enumerate(held_out):
        print(
            f"    {module.name:12}"
            + "".join(f"{-np.mean(rows, axis=0)[i]:+9.1%}" for rows in table.values())
        )
    weights = models["REINFORCE"][0]
    library = shared.compile_linear(weights[1:], weights[0], "features", results, argmax=True)
    same = shared.alike(
        task, held_out, lambda r: int(logits(weights, r["features"][None]).argmax()), library
    )
    alone = sum(task.baseline(m) == plain.baseline(m) for m in held_out)
    print(f"\nas machine code in gcc (aot://): the same programs for {same} of {len(held_out)}")
    print(f"with the plugin and no model: gcc's own programs for {alone} of {len(held_out)}")
    print(f"{time.monotonic() - start:.0f} s in total")
    found = {
        "held_out": [m.name for m in held_out],
        "improvement": table,
        "seconds": took,
        "same": same,
    }
    (results / "results.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

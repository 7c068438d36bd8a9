"""A coreset of sequences: python coreset.py [--quick]. README.md has the plan and the results.

Evolution finds sequences on the training modules, and a greedy choice keeps the few that complement
each other best. A forest of trees then picks one of ten for a module, also in opt's process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import programs
from deploy import deploy
from run import HERE, kept
from search import (
    ACTIONS,
    STOP,
    build,
    compile_sequences,
    everything,
    instructions,
    log_ratio,
    random_sequences,
    replay,
    scores_of,
)
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import RandomForestRegressor

from shmbridge.training import Corpus, Task, collect, evaluate

FIRST, ROUNDS, CHILDREN = 32, 8, 16  # sequences at first, then rounds of so many children
PARENTS, MOVES = 10, 3
SIZES = (10, 50)  # of a coreset, with -Oz
LEAF = 5  # modules in a tree's leaf, at least
SAMPLES = 10_000  # of the bootstrap
OZ = list(range(len(ACTIONS)))  # the actions in the order of -Oz; `stop` is the last
Sequences = Sequence[Sequence[int]]


# ---- The coreset ----


def greedy(values: np.ndarray, count: int) -> list[int]:
    """The rows of float64[sequences, modules] that add most to the sum of the modules' best, one
    after the other; -Oz, with 0, is there from the start. When none adds anything, the rest is
    chosen from as if nothing had been chosen."""
    best, chosen = np.zeros(values.shape[1]), list[int]()
    while len(chosen) < min(count, len(values)):
        left = np.setdiff1d(np.arange(len(values)), chosen)
        sums = np.maximum(values[left], best).sum(axis=1)
        if sums.max() <= best.sum() > 0:
            best = np.zeros_like(best)
            continue
        chosen.append(int(left[sums.argmax()]))
        best = np.maximum(best, values[chosen[-1]])
    return chosen


def before_stop(order: Sequence[int]) -> list[int]:
    """What runs of an order of all actions."""
    order = [int(action) for action in order]
    return order[: order.index(STOP)]


def child(parents: Sequences, random: np.random.Generator) -> list[int]:
    """The beginning of a parent, the other actions in another parent's order; then a few move."""
    one, other = (list(parents[row]) for row in random.integers(len(parents), size=2))
    order = one[: random.integers(len(one) + 1)]
    order += [action for action in other if action not in order]
    for _ in range(random.integers(1, MOVES + 1)):
        order.insert(random.integers(len(order)), order.pop(random.integers(len(order))))
    return order


def evolved(modules: Corpus, first: int, rounds: int, children: int) -> dict[str, Any]:
    """Sequences, all different, their log ratios float64[sequences, modules], and the
    minutes."""
    began, random = time.monotonic(), np.random.default_rng(1)
    pool: list[Any] = [OZ, *random_sequences(first - 1, seed=1)]
    known = {tuple(before_stop(order)) for order in pool}
    values = compile_sequences(modules, pool)
    for _ in range(rounds):
        parents, made = [pool[row] for row in greedy(values, PARENTS)], []
        while len(made) < children:
            order = child(parents, random)
            if (runs := tuple(before_stop(order))) not in known:
                known.add(runs)
                made.append(order)
        pool += made
        values = np.concatenate([values, compile_sequences(modules, made)])
    return {
        "sequences": [before_stop(order) for order in pool],
        "log ratios": values.tolist(),
        "minutes": (time.monotonic() - began) / 60,
    }


# ---- The forest ----


def forest(counters: np.ndarray, ratios: np.ndarray) -> RandomForestRegressor:
    """Predicts the log ratio of each sequence from a module's counters."""
    trees = RandomForestRegressor(min_samples_leaf=LEAF, max_features=0.3, random_state=0)
    return trees.fit(counters, ratios.T)


def counters_of(modules: Corpus) -> np.ndarray:
    """float32[modules, counters], before the first action."""
    stopping = collect(lambda batch: np.full(len(batch), STOP), instructions(), modules)
    first = {episode.module.name: episode.features["counters"][0] for episode in stopping}
    return np.array([first[module.name] for module in modules])


def written(trees: RandomForestRegressor, sequences: Sequences, folder: Path) -> Task:
    """Writes coreset.txt, whose actions are -Oz and whole sequences, and coreset.onnx, the forest,
    which scores them. The task has one step: the choice of a sequence."""
    lines = [",".join(ACTIONS[action] for action in each) or "stop" for each in sequences]
    actions = folder / "coreset.txt"
    actions.write_text("\n".join(["default<Oz>", *lines]) + "\n")
    counters = ("counters", FloatTensorType([None, trees.n_features_in_]))
    model = to_onnx(trees, initial_types=[counters], target_opset=17)
    (folder / "coreset.onnx").write_bytes(model.SerializeToString())
    return everything(actions, steps=1)


# ---- Measurements ----


def searched(test: Corpus, sequences: Sequences) -> dict[str, Any]:
    """Each module's log ratio, and the means of all scores: of the first sequence alone, and of the
    best of the first ones and -Oz."""
    tried = [OZ, *sequences]
    values = np.vstack([np.zeros(len(test)), compile_sequences(test, sequences)])
    best = {"the first": np.ones(len(test), int)}
    best |= {f"best of {size}": values[:size].argmax(axis=0) for size in SIZES}
    rows = {}
    for name, places in best.items():
        chosen = {m.name: tried[place] for m, place in zip(test, places, strict=True)}
        ratios = values[places, np.arange(len(test))]
        rows[name] = (ratios, scores_of(replay(chosen), everything(), test))
    return rows


def interval(values: Any) -> list[float]:
    """95 % of the mean, by a bootstrap over the modules."""
    picks = np.random.default_rng(0).integers(len(values), size=(SAMPLES, len(values)))
    means = np.array(values)[picks].mean(axis=1)
    return [float(bound) for bound in np.percentile(means, (2.5, 97.5))]


def main() -> None:
    quick = "--quick" in sys.argv
    results, work = HERE / "results" / ("quick" * quick), HERE / "build"
    results.mkdir(parents=True, exist_ok=True)
    build()
    corpora = programs.small(work / "small") if quick else programs.corpora(work / "programs")
    train = Corpus(m for m in corpora["train"] if not m.name.startswith("csmith"))
    test, sizes = corpora["test"], (4, 1, 2) if quick else (FIRST, ROUNDS, CHILDREN)
    found = kept(results, evolved, train, *sizes)
    values = np.array(found["log ratios"])
    chosen = greedy(values, SIZES[-1] - 1)
    sequences = [found["sequences"][row] for row in chosen]

    few = SIZES[0] - 1
    ratios = np.vstack([np.zeros(len(train)), values[chosen[:few]]])  # of -Oz, and of the others
    trees = forest(counters_of(train), ratios)
    picking = written(trees, sequences[:few], results)

    def pick(batch: Any) -> np.ndarray:
        """The scores of each sequence."""
        return trees.predict(batch["counters"])

    picked = np.nan_to_num([*evaluate(pick, picking, test, reward=log_ratio).values()])
    rows = {"the forest's pick": (picked, scores_of(pick, picking, test))}
    others = random_sequences(len(sequences), seed=0)
    for name, each in (("coreset", sequences), ("random", others)):
        rows |= {f"{row}, {name}": its for row, its in searched(test, each).items()}
    deployed = deploy(pick, results / "coreset.onnx", picking, test, compiled=False)
    for size in SIZES:
        better, worse = (rows[f"best of {size}, {name}"][0] for name in ("coreset", "random"))
        rows[f"coreset / random, best of {size}"] = (better - worse, {})
    report = {
        "modules": {"train": [m.name for m in train], "test": [m.name for m in test]},
        "minutes": found["minutes"],
        "compilations": values.size,
        "sequences": sequences,
        "deployed": deployed,
        "log ratios": {
            name: {"mean": ratios.mean(), "interval": interval(ratios), "scores": means}
            | {"modules": ratios.tolist()}
            for name, (ratios, means) in rows.items()
        },
    }
    (results / "coreset.json").write_text(json.dumps(report))
    print(f"{values.size} compilations, {found['minutes']:.1f} minutes; deployed: {deployed}")
    print("-Oz divided by ours, geometric means over modules (95 %):")
    for name, each in report["log ratios"].items():
        low, high = np.exp(each["interval"])
        scores = "  ".join(f"{score} {np.exp(mean):.4f}" for score, mean in each["scores"].items())
        print(f"{name:34} {np.exp(each['mean']):.4f} ({low:.4f} to {high:.4f})  {scores}")


if __name__ == "__main__":
    main()

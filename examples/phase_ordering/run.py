"""Phase ordering from the beginning to the end: python run.py [--quick]. README.md tells what comes out."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import programs
from deploy import deploy
from policy import Policy
from search import (
    build,
    compile_sequences,
    everything,
    greedy_search,
    instructions,
    log_ratio,
    mixed,
    modules_of,
    random_sequences,
    replay,
    scores_of,
)
from train import train

from shmbridge.corpus import Corpus
from shmbridge.trajectories import evaluate

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SAMPLED = 10  # compilations of a program, where a policy may try several
Table = dict[str, list[dict[str, float]]]  # by row, for each seed: the mean log ratio by score


def main() -> None:
    options = arguments()
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)

    RESULTS.mkdir(exist_ok=True)
    build()
    say("the plugin is built")
    folder = HERE / "build" / ("small" if options.quick else "programs")
    corpora = programs.small(folder) if options.quick else programs.corpora(folder)
    say("modules: " + ", ".join(f"{name} {len(corpus)}" for name, corpus in corpora.items()))
    table: Table = {}
    for name, row in searched(corpora["test"], options.compilations):
        table[name] = row
        say(f"{name}: {text_of(row)}")
    curves = []
    for seed in range(options.seeds):
        policy, curve = learnt(corpora["train"], seed, options)
        curves.append(curve)
        say(f"seed {seed} has trained for {curve[-1]['seconds']:.0f} s")
        for name, row in tested(policy, corpora):
            table.setdefault(name, []).append(row)
            say(f"  {name}: {text_of([row])}")
        if seed == 0:
            deployed = deploy(policy, RESULTS, corpora["test"])
            say(f"in this process, by onnx:// and by aot:// the same: {deployed}")
        keep(options, corpora, table, curves, deployed, time.monotonic() - began)
    print("\n-Oz divided by ours, geometric means over modules, mean of seeds (least to greatest):")
    for name, row in table.items():
        print(f"{name:42} {text_of(row)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small programs, little training")
    parser.add_argument("--seeds", type=int, default=5, help="how many trainings (5)")
    parser.add_argument(
        "--updates", type=int, default=100, help="of a training, 64 compilations each (100)"
    )
    parser.add_argument(
        "--compilations", type=int, default=50, help="of a module, for each search (50)"
    )
    parser.add_argument(
        "--reward",
        choices=["instructions", "mixed"],
        default="instructions",
        help="what is learnt; mixed: bytes of .text and cycles by llvm-mca, as 2 to 1",
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.updates, options.compilations = 1, 1, 20
    return options


def searched(test: Corpus, compilations: int) -> Any:
    """Yields the rows of random and of greedy search."""
    ratios = compile_sequences(test, sequences := random_sequences(compilations, seed=0))
    for count in (1, SAMPLED, compilations):
        best = ratios[:count].argmax(axis=0)
        chosen = {module.name: sequences[row] for module, row in zip(test, best, strict=True)}
        yield f"random search, {count}", [scores_of(replay(chosen), everything(), test)]
    chosen = {module.name: greedy_search(module, compilations) for module in test}
    yield f"greedy search, at most {compilations}", [scores_of(replay(chosen), everything(), test)]


def learnt(train_on: Corpus, seed: int, options: argparse.Namespace) -> tuple[Policy, list[dict]]:
    """A policy, and the figures of each update."""
    task, reward = (
        (everything(), mixed) if options.reward == "mixed" else (instructions(), log_ratio)
    )
    size = {"modules": 1, "samples": 4} if options.quick else {}
    updates = list(train(train_on, task, reward, seed, options.updates, **size))
    return updates[-1][0], [figures for _, figures in updates]


def tested(policy: Policy, corpora: dict[str, Corpus]) -> Any:
    """Yields the rows of a policy."""
    for use in corpora:
        yield f"policy, 1, {use}", scores_of(policy.likeliest, everything(), corpora[use])
    test = corpora["test"]
    ratios = np.nan_to_num(
        evaluate(policy.sampled, SAMPLED, instructions(), test, reward=log_ratio)
    )
    best = {module.name: row for module, row in zip(test, ratios.argmax(axis=0), strict=True)}

    def again(batch: Any) -> np.ndarray:
        return policy.sampled(batch, [best[name] for name in modules_of(batch)])

    yield f"policy, {SAMPLED}, test", scores_of(again, everything(), test)


def text_of(row: Sequence[dict[str, float]]) -> str:
    """Geometric means by score; of several seeds their mean, and the least and the greatest."""
    texts = []
    for score in row[0]:
        values = np.exp([means[score] for means in row])
        spread = f" ({values.min():.4f} to {values.max():.4f})" if len(row) > 1 else ""
        texts.append(f"{score} {values.mean():.4f}{spread}")
    return "  ".join(texts)


def keep(
    options: Any, corpora: Any, table: Table, curves: Any, deployed: Any, seconds: float
) -> None:
    """Writes results.json, and the picture where Matplotlib is installed."""
    results = {
        "options": vars(options),
        "modules": {name: [module.name for module in corpus] for name, corpus in corpora.items()},
        "mean log ratios": table,
        "curves": curves,
        "deployed": deployed,
        "seconds": seconds,
    }
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(8, 4))
    left, right = figure.subplots(1, 2)
    for seed, curve in enumerate(curves):
        rewards = np.array([figures["reward"] for figures in curve])
        smooth = [rewards[max(0, i - 9) : i + 1].mean() for i in range(len(rewards))]
        left.plot(
            [figures["compilations"] for figures in curve], np.exp(smooth), label=f"seed {seed}"
        )
    left.set(
        xlabel="compilations in training", ylabel="-Oz's instructions / ours, ten updates' mean"
    )
    left.legend()
    names = list(table)
    right.barh(
        names,
        [np.exp(np.mean([means["instructions"] for means in row])) - 1 for row in table.values()],
    )
    right.set(xlabel="-Oz's instructions / ours - 1")
    right.invert_yaxis()
    figure.tight_layout()
    figure.savefig(RESULTS / "results.png", dpi=150)


if __name__ == "__main__":
    main()

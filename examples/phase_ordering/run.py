"""The whole of phase ordering: python run.py [--quick]. README.md has the results."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
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
    instructions,
    log_ratio,
    modules_of,
    random_sequences,
    replay,
    scores_of,
)
from train import train

from shmbridge.training import Corpus, candidate_rewards

HERE = Path(__file__).parent
SAMPLED = 10  # compilations of a program, where a policy may try several
Table = dict[str, list[dict[str, float]]]  # by row, for each seed: the mean log ratio by score


def main() -> None:
    options = arguments()
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)

    results = HERE / "results"
    if options.quick:
        results /= "quick"
        shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True, exist_ok=True)
    build()
    say("the plugin is built")
    folder = HERE / "build" / ("small" if options.quick else "programs")
    corpora = programs.small(folder) if options.quick else programs.corpora(folder)
    say("modules: " + ", ".join(f"{name} {len(corpus)}" for name, corpus in corpora.items()))
    table: Table = {}
    for name, means in kept(results, randomly, corpora["test"], options.compilations):
        table[name] = [means]
        say(f"{name}: {text_of([means])}")
    policies, curves = list[Policy](), list[list[dict[str, float]]]()
    for seed in range(options.seeds):
        done = kept(results, learnt, corpora, seed, options.updates)
        policies.append(Policy(done["layers"]))
        curves.append(done["curve"])
        say(f"seed {seed} has trained for {done['curve'][-1]['seconds']:.0f} s")
        for name, means in done["rows"]:
            table.setdefault(name, []).append(means)
            say(f"  {name}: {text_of([means])}")
    model = results / "policy.onnx"
    policies[0].save_onnx(model)
    deployed = deploy(policies[0].likeliest, model, everything(), corpora["test"])
    say(f"in this process, by onnx:// and by aot:// the same: {deployed}")
    print("\n-Oz divided by ours, geometric means over modules, mean of seeds (least to greatest):")
    for name, row in table.items():
        print(f"{name:42} {text_of(row)}")
    write(results, options, corpora, table, curves, deployed)


def kept(results: Path, part: Callable[..., Any], corpora: Any, *arguments: Any) -> Any:
    """The result of a part. It is kept in a file, so that an interrupted run continues."""
    path = results / ("-".join(map(str, (part.__name__, *arguments))) + ".json")
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_text(json.dumps(part(corpora, *arguments)))
        new.rename(path)
    return json.loads(path.read_text())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small programs, little training")
    parser.add_argument("--seeds", type=int, default=5, help="how many trainings (5)")
    parser.add_argument(
        "--updates", type=int, default=100, help="updates of a training, 64 compilations each (100)"
    )
    parser.add_argument(
        "--compilations",
        type=int,
        default=50,
        help="compilations of a module in the random search (50)",
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.updates, options.compilations = 1, 1, 20
    return options


def randomly(test: Corpus, compilations: int) -> list[tuple[str, dict[str, float]]]:
    """The rows of random search."""
    sequences = random_sequences(compilations, seed=0)
    ratios = compile_sequences(test, sequences)
    rows = []
    for count in (1, SAMPLED, compilations):
        best = ratios[:count].argmax(axis=0)
        chosen = {module.name: sequences[row] for module, row in zip(test, best, strict=True)}
        rows.append((f"random search, {count}", scores_of(replay(chosen), everything(), test)))
    return rows


def learnt(corpora: dict[str, Corpus], seed: int, updates: int) -> dict[str, Any]:
    """A policy's layers, its rows, and the figures of each update of its training."""
    size = {"modules": 1, "samples": 4} if "generated" not in corpora else {}  # --quick
    done = list(train(corpora["train"], instructions(), log_ratio, seed, updates, **size))
    policy, curve = done[-1][0], [figures for _, figures in done]
    layers = [[array.tolist() for array in layer] for layer in policy.layers]
    return {"layers": layers, "rows": tested(policy, corpora), "curve": curve}


def tested(policy: Policy, corpora: dict[str, Corpus]) -> list[tuple[str, dict[str, float]]]:
    """The rows of a policy."""
    rows = [
        (f"policy, 1, {use}", scores_of(policy.likeliest, everything(), corpus))
        for use, corpus in corpora.items()
    ]
    test, task = corpora["test"], instructions()
    ratios = np.nan_to_num(candidate_rewards(policy.sampled, SAMPLED, task, test, reward=log_ratio))
    best = {module.name: row for module, row in zip(test, ratios.argmax(axis=0), strict=True)}

    def again(batch: Any) -> np.ndarray:
        return policy.sampled(batch, [best[name] for name in modules_of(batch)])

    return [*rows, (f"policy, {SAMPLED}, test", scores_of(again, everything(), test))]


def text_of(row: Sequence[dict[str, float]]) -> str:
    """Geometric means by score; of several seeds their mean, and the least and the greatest."""
    texts = []
    for score in row[0]:
        values = np.exp([means[score] for means in row])
        spread = f" ({values.min():.4f} to {values.max():.4f})" if len(row) > 1 else ""
        texts.append(f"{score} {values.mean():.4f}{spread}")
    return "  ".join(texts)


def write(
    results: Path, options: Any, corpora: Any, table: Table, curves: Any, deployed: Any
) -> None:
    """Writes results.json."""
    said = {
        "options": vars(options),
        "modules": {name: [module.name for module in corpus] for name, corpus in corpora.items()},
        "mean log ratios": table,
        "curves": curves,
        "deployed": deployed,
    }
    (results / "results.json").write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()

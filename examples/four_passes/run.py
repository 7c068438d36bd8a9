"""Learns which passes opt-22 should run, up to four of a small set, and compares that with the
optimum.

python run.py [--quick] [--seeds N] [--compilations N] [--only METHOD,...]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from environment import BUILD, HERE, PASSES, RESULTS, STEPS, environment, prepare, task
from export import export
from loop import learn
from optimum import Graph, optimum
from shared import said

from shmbridge.training import Corpus, Progress

METHODS = ("loop", "PPO", "A2C")
QUICK = ("sums", "helpers")


def train(
    method: str, seed: int, corpus: Corpus, compilations: int, steps: int, curve: Path
) -> Path:
    """Learns, unless an earlier run did: (the policy's ONNX file)."""
    onnx = curve.with_suffix(".onnx")
    if onnx.exists():
        return onnx
    if method != "loop":
        from with_sb3 import learn as learn_with_sb3

        learn_with_sb3(method, corpus, seed, compilations, curve)
        return onnx
    env = environment(corpus, seed=seed, steps=steps, autoreset_mode="SameStep")
    try:
        with Progress(curve, total=compilations) as progress:
            policy = learn(env, compilations, seed, progress)
    finally:
        env.close()
    export(policy, onnx)
    return onnx


def decide(url: str, corpus: Corpus, steps: int) -> dict[str, float]:
    """The instructions left of each program if the model at a URL chooses: one compilation each."""
    scored = task(scored=True, steps=steps)
    left = {}
    for module in corpus:
        outcome = scored.run(module, url)
        if not outcome.ok:
            raise SystemExit(f"{module.name}: {outcome.kind}: {outcome.stderr}\n{outcome.command}")
        left[module.name] = outcome.scores["instructions"]
    return left


def mean_part(left: dict[str, float], graphs: dict[str, Graph]) -> float:
    """The mean over programs of the part of the greatest possible decrease."""
    return statistics.mean(graphs[name].part(left[name]) for name in left)


def actions(url: str, module: Path) -> str:
    """The actions that opt reports, with the model at a URL."""
    how = f"actions={HERE / 'passes.txt'};steps={STEPS};repeat;print"
    plugin = f"-load-pass-plugin={BUILD / 'phase-ordering.so'}"
    words = ["opt-22", plugin, f"-passes=phase-ordering<{how}>", str(module), "-o", "/dev/null"]
    done = subprocess.run(
        ["env", f"SHMBRIDGE_URL={url}", *words], capture_output=True, text=True, check=True
    )
    return done.stderr.partition(": actions")[2].strip()


def deploy(onnx: Path, programs: Corpus) -> None:
    """Checks that ONNX Runtime and machine code make the same decisions."""
    library = onnx.with_suffix(".so")
    print(said("shmbridge", "compile", str(onnx), "-o", str(library)).splitlines()[0])
    for module in programs:
        both = [
            actions(f"{scheme}://{file}", module.path)
            for scheme, file in (("onnx", onnx), ("aot", library))
        ]
        if both[0] != both[1] or "instructions" not in both[0]:
            raise SystemExit(
                f"{module.name}: expected the same by onnx:// and aot://, found {both}"
            )
        print(f"  {module.name}: {both[0]}")


def main() -> None:
    """Trains, measures, prints, deploys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two programs, two passes, no torch")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--compilations", type=int, default=1000, help="of each training")
    parser.add_argument("--only", default=",".join(METHODS), help="methods, with commas between")
    options = parser.parse_args()
    methods, seeds, compilations = options.only.split(","), options.seeds, options.compilations
    began = time.monotonic()
    train_on, held_out = prepare(QUICK, ["matrix"]) if options.quick else prepare()
    if options.quick:
        methods, seeds, compilations = ["loop"], 1, 60
    RESULTS.mkdir(exist_ok=True)
    folder = RESULTS / ("quick" if options.quick else str(compilations))
    if options.quick:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)

    steps = 2 if options.quick else STEPS
    graphs = optimum(Corpus([*train_on, *held_out]), steps)
    for name, graph in graphs.items():
        best = [PASSES[action] for action in graph.ways[graph.counts.index(graph.best)]]
        print(f"{name}: {graph.counts[0]} instructions, {graph.best} behind {', '.join(best)}")

    parts: dict[str, dict[str, list[float]]] = {}
    scores: dict[str, dict[str, float]] = {
        name: {"before": graph.counts[0], "optimum": graph.best} for name, graph in graphs.items()
    }
    for method in methods:
        parts[method] = {"trained": [], "held out": []}
        for seed in range(seeds):
            print(f"{method}, seed {seed}: {compilations} compilations", flush=True)
            onnx = train(
                method, seed, train_on, compilations, steps, folder / f"{method}-{seed}.csv"
            )
            for kind, corpus in {"trained": train_on, "held out": held_out}.items():
                left = decide(f"onnx://{onnx}", corpus, steps)
                parts[method][kind].append(mean_part(left, graphs))
                if seed == 0:
                    for name in left:
                        scores[name][method] = left[name]
    each = compilations // len(train_on)
    parts[f"random, {each} a program"] = at_random(graphs, train_on, held_out, each, steps)
    parts["random, 1 a program"] = at_random(graphs, train_on, held_out, 1, steps)

    print(f"\n{'part of the greatest decrease':30} {'trained':>24} {'held out':>24}")
    for method, kinds in parts.items():
        shown = (
            f"{statistics.mean(v):6.1%} ({min(v):6.1%} to {max(v):6.1%})" for v in kinds.values()
        )
        print(f"{method:30} {' '.join(shown)}")
    results: dict[str, Any] = {
        "compilations": compilations,
        "parts": parts,
        "scores": scores,
        "seconds": time.monotonic() - began,
    }
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    pictures(folder, methods, seeds)
    print(f"\n{methods[0]}, seed 0, in opt's own process:")
    deploy(folder / f"{methods[0]}-0.onnx", Corpus([*train_on, *held_out]))


def at_random(
    graphs: dict[str, Graph], train_on: Corpus, held_out: Corpus, sequences: int, steps: int
) -> dict[str, list[float]]:
    """Twenty searches, in the table of all sequences."""
    found: dict[str, list[float]] = {}
    for kind, corpus in {"trained": train_on, "held out": held_out}.items():
        found[kind] = []
        for seed in range(20):
            random = np.random.default_rng(seed)
            left: dict[str, float] = {
                m.name: graphs[m.name].random(random, sequences, steps) for m in corpus
            }
            found[kind].append(mean_part(left, graphs))
    return found


def pictures(folder: Path, methods: list[str], seeds: int) -> None:
    """Curves, if pandas and Matplotlib are installed."""
    try:
        from pictures import save_curves
    except ImportError as error:
        print(f"no pictures: {error}")
        return
    curves = {m: [folder / f"{m}-{seed}.csv" for seed in range(seeds)] for m in methods}
    save_curves(RESULTS / "curves.png", curves)


if __name__ == "__main__":
    main()

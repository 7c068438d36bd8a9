"""Teaches a pass of stock mlir-opt 22 which tile sizes suit a matmul, and prints the results.

    python run.py [--quick] [--seeds N] [--turns N]

README.md explains the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared

from shmbridge.envs import CompilerEnv
from shmbridge.errors import ShmbridgeError
from shmbridge.training import Module, Outcome, Task

HERE = Path(__file__).parent
LLVM = Path("/usr/lib/llvm-22")
SIZES, CHOICES = [0, 8, 32, 128], 64  # as in tile.cpp
TRAIN = [
    "16x128x16",
    "32x32x128",
    "32x64x32",
    "32x256x64",
    "64x64x64",
    "64x128x128",
    "96x96x96",
    "128x32x192",
    "128x128x128",
    "160x160x160",
    "192x64x256",
    "256x128x16",
]
# MxNxK.
HELD_OUT = [
    "32x192x192",
    "48x48x48",
    "64x256x32",
    "128x64x128",
    "144x144x144",
    "256x32x64",
]
REPEATS = 2  # of the held-out shapes' trials


def matmul(shape: str) -> str:
    """A function that adds a product of matrices to a matrix."""
    m, n, k = shape.split("x")
    a, b, c = f"memref<{m}x{k}xf32>", f"memref<{k}x{n}xf32>", f"memref<{m}x{n}xf32>"
    return (
        f"func.func @f{shape}(%a: {a}, %b: {b}, %c: {c}) {{\n"
        f"  linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c})\n  return\n}}\n"
    )


def module(folder: Path, name: str, text: str) -> Module:
    path = folder / f"{name}.mlir"
    path.write_text(text)
    return Module(name, path)


def logs(shapes: Sequence[str]) -> Any:
    """What the pass observes: float32[shapes, 3]."""
    return np.log2(np.array([shape.split("x") for shape in shapes], np.float32))


class Tuner:
    """Tries choices in one mlir-opt after another; each asks many times."""

    def __init__(self, plugin: Path, folder: Path) -> None:
        self.plugin, self.folder = plugin, folder

    def task(self, passes: str, **options: Any) -> Task:
        words = [
            "mlir-opt-22",
            f"--load-pass-plugin={self.plugin}",
            f"--pass-pipeline=builtin.module({passes})",
        ]
        return Task([*words, "{module}", "-o", "{output}"], **options)

    def trials(self, shapes: Sequence[str], count: int, choose: Callable[..., Any]) -> Any:
        """Tries `count` choices of each shape, in turns: choose(rewards, choices) of the turns so
        far gives each shape's next.

        Returns float64[count, shapes], log2 of how many times faster than untiled; and the choices.
        """
        task = self.task(f"shmbridge-tile{{trials={count}}}", seconds=3600)
        tried = module(self.folder, "trials", "".join(map(matmul, shapes)))
        rewards, choices = np.zeros((count, len(shapes))), np.zeros((count, len(shapes)), int)
        outcome: list[Outcome] = []
        url = f"shm://tile-{os.getpid()}"
        env = CompilerEnv(url, actions=CHOICES)
        compiler = threading.Thread(target=lambda: outcome.append(task.run(tried, url)))
        compiler.start()
        try:
            for turn in range(count):
                choices[turn] = choose(rewards[:turn], choices[:turn])
                for i, choice in enumerate(choices[turn]):
                    env.reset()
                    _, rewards[turn, i], _, truncated, info = env.step(int(choice))
                    if truncated:
                        raise ShmbridgeError(info["error"])
        finally:
            env.close()
            compiler.join()
        assert outcome[0].ok, outcome[0].stderr
        return rewards, choices


# ---- The model: a cost model, linear in the logs of the shape, of each choice ----


def parts(choices: Any) -> Any:
    """A choice's tile sizes, alone and in pairs: float64[choices, 61]."""
    digits = np.stack([choices // 16, choices // 4 % 4, choices % 4])
    pairs = [digits[0] * 4 + digits[1], digits[0] * 4 + digits[2], digits[1] * 4 + digits[2]]
    alone = [np.eye(4)[digit] for digit in digits] + [np.eye(16)[pair] for pair in pairs]
    return np.concatenate([np.ones((len(choices), 1)), *alone], axis=1)


def scaled(shapes: Any) -> Any:
    return np.insert(shapes / 4 - 1.5, 0, 1, axis=1)  # around 0


def fit(shapes: Any, choices: Any, rewards: Any) -> Any:
    """Ridge regression. Returns weights[4, 64]: scaled(shapes) @ weights are the choices' expected
    rewards."""
    x = (scaled(shapes)[:, :, None] * parts(choices)[:, None, :]).reshape(len(choices), -1)
    flat = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ rewards)
    return flat.reshape(4, -1) @ parts(np.arange(CHOICES)).T


def best_of(weights: Any, shapes: Sequence[str]) -> Any:
    return (scaled(logs(shapes)) @ weights).argmax(axis=1)


def learn(tuner: Tuner, turns: int, seed: int) -> Any:
    """The first half of the turns is random. Later turns take the model's best choice, or a random
    one in one of four cases.

    Returns the model's choice for each held-out shape, and its weights.
    """
    random = np.random.default_rng(seed)

    def model(rewards: Any, choices: Any) -> Any:
        return fit(np.tile(logs(TRAIN), (len(rewards), 1)), choices.ravel(), rewards.ravel())

    def choose(rewards: Any, choices: Any) -> Any:
        drawn = random.integers(CHOICES, size=len(TRAIN))
        if len(rewards) < turns // 2:
            return drawn
        likely = best_of(model(rewards, choices), TRAIN)
        return np.where(random.random(len(TRAIN)) < 0.25, drawn, likely)

    weights = model(*tuner.trials(TRAIN, turns, choose))
    return best_of(weights, HELD_OUT), weights


def search(tuner: Tuner, turns: int, seed: int) -> Any:
    """Random search with as many trials: the choice with the best mean is used for every held-out
    shape."""
    random = np.random.default_rng(seed)
    tried = random.permutation(CHOICES)[:turns]
    rewards, _ = tuner.trials(TRAIN, turns, lambda _, choices: [tried[len(choices)]] * len(TRAIN))
    return np.full(len(HELD_OUT), tried[rewards.mean(axis=1).argmax()])


# ---- Deployment ----


def shipped(tuner: Tuner, weights: Any, folder: Path) -> int:
    """The number of held-out shapes for which mlir-opt writes the same with the compiled model as
    with the model in Python."""
    matrix, bias = weights[1:] / 4, weights[0] - 1.5 * weights[1:].sum(axis=0)  # as scaled() does
    library = shared.compile_linear(matrix, bias, "shape", folder, argmax=False)
    task = tuner.task("shmbridge-tile", scores={"text": lambda path: zlib.crc32(path.read_bytes())})
    modules = [module(tuner.folder, shape, matmul(shape)) for shape in HELD_OUT]
    return shared.alike(
        task, modules, lambda r: int((scaled(r["shape"][None]) @ weights).argmax()), library
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--quick", action="store_true", help="a form of about ten seconds, once the plugin is built"
    )
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--turns", type=int, help="trials of each training shape")
    args = parser.parse_args()
    seeds, turns = args.seeds or (1 if args.quick else 3), args.turns or (2 if args.quick else 16)
    repeats = 0 if args.quick else REPEATS
    start = time.monotonic()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    print("builds the plugin", flush=True)
    shared.build(HERE, HERE / "build", f"-DMLIR_DIR={LLVM}/lib/cmake/mlir")
    with tempfile.TemporaryDirectory() as work:
        tuner = Tuner(HERE / "build" / "shmbridge-mlir.so", Path(work))
        print(
            f"train: {', '.join(TRAIN)}\nheld out: {', '.join(HELD_OUT)}\na training: {turns} x {len(TRAIN)} trials",
            flush=True,
        )
        models, took = [], {}
        for way, run in (("random search", search), ("learnt", learn)):
            began = time.monotonic()
            models.append([run(tuner, turns, seed) for seed in range(seeds)])
            took[way] = (time.monotonic() - began) / seeds
        tiles = {"random search": models[0], "learnt": [choices for choices, _ in models[1]]}
        weights = models[1][0][1]

        found: dict[str, Any] = {"seconds": took}
        if repeats:  # each choice for each held-out shape
            rewards, _ = tuner.trials(
                HELD_OUT,
                repeats * CHOICES,
                lambda _, choices: [len(choices) % CHOICES] * len(HELD_OUT),
            )
            known = np.median(rewards.reshape(repeats, CHOICES, -1), axis=0)
            every = np.arange(len(HELD_OUT))
            logs2 = {
                way: [known[choices, every].mean() for choices in chosen]
                for way, chosen in tiles.items()
            }
            logs2["each choice tried on the shape itself, the best"] = [known.max(axis=0).mean()]
            logs2["a random choice"] = [known.mean()]
            print(
                f"\ntimes as fast as untiled, geometric mean of {len(HELD_OUT)} held-out shapes; [least, most] of {seeds} seeds"
            )
            for way, means in logs2.items():
                spread = (
                    f"[{2 ** min(means):5.2f}, {2 ** max(means):5.2f}]  {took[way]:.0f} s a training"
                    if way in took
                    else ""
                )
                print(f"  {way:48} {2 ** np.mean(means):5.2f}  {spread}")
            found["times_as_fast"] = {
                way: [2**mean for mean in means] for way, means in logs2.items()
            }
            found["held_out"] = {
                shape: (2**column).tolist() for shape, column in zip(HELD_OUT, known.T, strict=True)
            }
        found["same"] = shipped(tuner, weights, results)
    print(
        f"\nas machine code in mlir-opt (aot://): the same output for {found['same']} of {len(HELD_OUT)}"
    )
    print(f"{time.monotonic() - start:.0f} s in total")
    (results / "results.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

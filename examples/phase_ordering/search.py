"""Compilations with the plugin, and searches that need no learning.

A sequence is a list of actions, the line numbers of actions.txt from 0 without its comments. `stop` ends it early.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge.corpus import Corpus, Module
from shmbridge.scores import ir_instructions, mca_cycles, text_size
from shmbridge.task import Outcome, Task
from shmbridge.trajectories import evaluate

HERE = Path(__file__).parent
ACTIONS = [
    line for line in (HERE / "actions.txt").read_text().splitlines() if line.split("#")[0].strip()
]
STOP = ACTIONS.index("stop")
PLUGIN = HERE / "build" / "phase-ordering.so"


def build() -> None:
    """Builds the plugin into build/, where that has not been done."""
    said = subprocess.run(
        ["shmbridge", "config", "--cmakedir"], capture_output=True, text=True, check=True
    )
    llvm = subprocess.run(
        ["llvm-config-22", "--cmakedir"], capture_output=True, text=True, check=True
    )
    folders = [f"-DLLVM_DIR={llvm.stdout.strip()}", f"-Dshmbridge_DIR={said.stdout.strip()}"]
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["cmake", "-S", HERE, "-B", PLUGIN.parent, *folders], **quiet)
    subprocess.run(["cmake", "--build", PLUGIN.parent], **quiet)


def make_task(**scores: Callable[[Path], float]) -> Task:
    """opt with the plugin; it writes LLVM's IR as text. Its baseline, without a URL, is -Oz."""
    options = f"actions={HERE / 'actions.txt'};steps={len(ACTIONS)}"
    return Task(
        [
            "opt-22",
            f"-load-pass-plugin={PLUGIN}",
            f"-passes=phase-ordering<{options}>",
            "{module}",
            "-S",
            "-o",
            "{output}",
        ],
        scores=scores,
        seconds=120,
    )


def instructions() -> Task:
    """Scored by LLVM's instructions alone, which searches count."""
    return make_task(instructions=ir_instructions)


def everything() -> Task:
    """Scored by what is left of a program: LLVM's instructions, bytes of .text, cycles by llvm-mca."""
    return make_task(
        instructions=ir_instructions,
        text=lambda ir: _after_llc(text_size, ir, "obj"),
        mca=lambda ir: _after_llc(mca_cycles, ir, "asm"),
    )


def _after_llc(score: Callable[[Path], float], ir: Path, kind: str) -> float:
    """The score of what llc makes of IR."""
    made = ir.with_suffix(f".{kind}")
    subprocess.run(["llc-22", f"-filetype={kind}", ir, "-o", made], check=True)
    return score(made)


def log_ratio(outcome: Outcome, baseline: Mapping[str, float]) -> float:
    """log(-Oz's instructions / ours): 0 as -Oz, 0.05 for 5 % fewer. Its mean is the log of the geometric mean."""
    return math.log((baseline["instructions"] + 1) / (outcome.scores["instructions"] + 1))


def compile_sequences(
    task: Task, modules: Sequence[Module] | Corpus, sequences: Sequence[Sequence[int]]
) -> np.ndarray:
    """Compiles each module with each sequence: float64[sequences, modules], log ratios; NaN where a compilation failed."""

    def policy(batch: Any, rows: np.ndarray) -> np.ndarray:
        steps = batch["used"].sum(axis=1).astype(int)
        return np.array(
            [following(sequences[row], step) for row, step in zip(rows, steps, strict=True)]
        )

    return evaluate(policy, len(sequences), task, modules, reward=log_ratio)


def following(sequence: Sequence[int], step: int) -> int:
    """The action of that step."""
    return int(sequence[step]) if step < len(sequence) else STOP


def random_sequences(count: int, seed: int) -> list[np.ndarray]:
    """Sequences that end anywhere: what choosing at random among the actions left, `stop` among them, comes to."""
    random = np.random.default_rng(seed)
    return [random.permutation(len(ACTIONS)) for _ in range(count)]


def greedy_search(task: Task, module: Module, compilations: int) -> tuple[list[int], float]:
    """Adds the best action, as long as one helps and the compilations last: the sequence and its log ratio."""
    best, sequence = -math.inf, list[int]()
    while True:
        left = [action for action in range(len(ACTIONS)) if action not in (STOP, *sequence)][
            :compilations
        ]
        if not left:
            return sequence, best
        compilations -= len(left)
        ratios = np.nan_to_num(
            compile_sequences(task, [module], [[*sequence, action] for action in left])[:, 0],
            nan=-math.inf,
        )
        if ratios.max() <= best:
            return sequence, best
        best = float(ratios.max())
        sequence.append(left[int(ratios.argmax())])

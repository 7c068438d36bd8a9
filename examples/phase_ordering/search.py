"""Compilations with the plug-in, and searches without learning.

A sequence is a list of actions: the pipelines of actions.txt, counted from 0. The value of a
compilation is a log ratio, log(-Oz's score / ours): 0 is equal to -Oz, 0.05 is 5 % less. Its mean
over modules is the log of the geometric mean.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared

from shmbridge.training import Module, Outcome, Task, candidate_rewards, collect
from shmbridge.training.scores import ir_instructions, printed, text_size

HERE = Path(__file__).parent
FILE = HERE / "actions.txt"
ACTIONS = [line for line in FILE.read_text().splitlines() if line.partition("#")[0].strip()]
STOP = ACTIONS.index("stop")
PLUGIN = HERE / "build" / "phase-ordering.so"
MCA = "llc-22 {output} -o - | llvm-mca-22 -iterations=1 -skip-unsupported-instructions=any"


def build() -> None:
    """Builds the plug-in in build/."""
    shared.build(HERE, PLUGIN.parent, shared.llvm())


# ---- opt's output and its value ----


def command(
    actions: Path, steps: int, *flags: str, options: str = "print", plugin: Path = PLUGIN
) -> list[str]:
    """opt with the plug-in. Without a URL it is -Oz."""
    options = f"actions={actions};steps={steps};{options}"
    loads = [f"-load-pass-plugin={plugin}", f"-passes=phase-ordering<{options}>"]
    return ["opt-22", *loads, *flags]


def make_task(opt: Sequence[str], **scores: Callable[[Path], float]) -> Task:
    """That command; it writes LLVM's IR as text. Its baseline is -Oz."""
    words = [*opt, "{module}", "-S", "-o", "{output}"]
    return Task(words, scores=scores)


def instructions() -> Task:
    """Scored only by LLVM's instructions, for searches."""
    return make_task(command(FILE, len(ACTIONS)), instructions=ir_instructions)


def everything(actions: Path = FILE, steps: int = len(ACTIONS)) -> Task:
    """Scored by LLVM's instructions, bytes of .text, and cycles by llvm-mca."""
    return scored(command(actions, steps))


def scored(opt: Sequence[str]) -> Task:
    """The same, of any command."""
    return make_task(
        opt,
        instructions=ir_instructions,
        text=_text,
        mca=printed(["sh", "-c", MCA], r"^Block RThroughput:\s+([\d.]+)"),
    )


def _text(ir: Path) -> float:
    made = ir.with_suffix(".obj")
    subprocess.run(["llc-22", "-filetype=obj", ir, "-o", made], check=True)
    return text_size(made)


def log_ratio(
    outcome: Outcome, baseline: Mapping[str, float], score: str = "instructions"
) -> float:
    """log(-Oz's score / ours). Adding 1 bounds the value of a program that becomes empty."""
    return math.log((baseline[score] + 1) / (outcome.scores[score] + 1))


def scores_of(
    policy: Callable[[Any], Any], task: Task, modules: Iterable[Module]
) -> dict[str, float]:
    """Compiles each module once: by score, the mean of the log ratios. A failed compilation counts
    as -Oz."""
    ratios = {name: list[float]() for name in task.scores}
    for episode in collect(policy, task, modules):
        baseline = task.baseline(episode.module) if episode.outcome.ok else {}
        for name, values in ratios.items():
            values.append(log_ratio(episode.outcome, baseline, name) if baseline else 0.0)
    return {name: float(np.mean(values)) for name, values in ratios.items()}


# ---- Searches ----


def following(sequence: Sequence[int], step: int) -> int:
    """The action of that step."""
    return int(sequence[step]) if step < len(sequence) else STOP


def steps_of(batch: Any) -> list[int]:
    """How many actions each compilation has run."""
    return [int(used) for used in batch["used"].sum(axis=1)]


def modules_of(batch: Any) -> list[str]:
    """The module of each compilation."""
    return [label.rpartition("@")[0] for label in batch.labels]


def compile_sequences(modules: Sequence[Module], sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """float64[sequences, modules]: log ratios of each module with each sequence; 0 where a
    compilation failed."""

    def policy(batch: Any, rows: np.ndarray) -> np.ndarray:
        turns = zip(rows, steps_of(batch), strict=True)
        return np.array([following(sequences[row], step) for row, step in turns])

    return np.nan_to_num(
        candidate_rewards(policy, len(sequences), instructions(), modules, reward=log_ratio)
    )


def replay(sequences: Mapping[str, Sequence[int]]) -> Callable[[Any], np.ndarray]:
    """A policy that gives each module the sequence of its name."""

    def policy(batch: Any) -> np.ndarray:
        turns = zip(modules_of(batch), steps_of(batch), strict=True)
        return np.array([following(sequences[module], step) for module, step in turns])

    return policy


def random_sequences(count: int, seed: int) -> list[np.ndarray]:
    """Random sequences of the remaining actions, including `stop`."""
    random = np.random.default_rng(seed)
    return [random.permutation(len(ACTIONS)) for _ in range(count)]

"""Scores a heuristic's file, in the form that OpenEvolve expects: `evaluate(program_path)`.

    openevolve-run FIRST.py evaluator.py --config config.yaml

The file defines `advise(request)`, as for `shmbridge run --host FILE:advise`. A search may write
anything into it. So it runs in a process of its own for each module, below a supervisor that limits
the time and memory of all processes together. Files and the network are not restricted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shmbridge.training import Corpus, Module, Outcome, Task
from shmbridge.training.scores import text_size

try:
    from openevolve.evaluation_result import EvaluationResult
except ImportError:  # the same form, for other searches
    from dataclasses import dataclass, field

    @dataclass
    class EvaluationResult:
        metrics: dict[str, float]
        artifacts: dict[str, str] = field(default_factory=dict)


HERE = Path(__file__).parent
# Which sources: in a search, set $SOURCES to files of your own, separated by colons.
SOURCES = os.environ.get("SOURCES", str(HERE / "tiny.c")).split(":")
CLANG = ["clang-22", "{flags}", "-Oz", "-c", "{module}", "-o", "{output}"]
SECONDS, MEMORY = 30.0, 1 << 30  # for a compilation with the candidate
FEW = 4  # modules of the first stage
FAILED = -1.0  # the score of a module that does not compile: as if it had doubled in size
SHOWN = 3  # modules in each artifact


def evaluate_stage1(program_path: str) -> EvaluationResult:
    """A few modules, so that a bad candidate costs little."""
    return _evaluate(program_path, _modules()[:FEW])


def evaluate_stage2(program_path: str) -> EvaluationResult:
    """All modules."""
    return evaluate(program_path)


def evaluate(program_path: str) -> EvaluationResult:
    """The mean relative reduction of .text by a candidate, compared with clang's own heuristic."""
    return _evaluate(program_path, _modules())


def _modules() -> Sequence[Module]:
    return list(Corpus.from_sources(*SOURCES))


def _evaluate(program_path: str, modules: Sequence[Module]) -> EvaluationResult:
    run = [sys.executable, "-m", "shmbridge.cli", "run", "--llvm", "inline", "--strict"]
    run += ["--host", f"{os.path.abspath(program_path)}:advise", "--"]
    scores = {"text": text_size}
    plain = Task(CLANG, scores=scores)
    task = Task([*run, *CLANG], scores=scores, seconds=SECONDS, memory=MEMORY)

    def reduction(module: Module) -> tuple[float, Outcome]:
        outcome = task.run(module)
        if not outcome.ok:
            return FAILED, outcome
        before = plain.baseline(module)["text"]
        return (before - outcome.scores["text"]) / max(before, 1), outcome  # 0: only data

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = sorted(pool.map(reduction, modules), key=lambda pair: pair[0])
    failed = [outcome for _, outcome in found if not outcome.ok]
    metrics = {
        "combined_score": sum(reduced for reduced, _ in found) / len(found),
        "compiled": 1 - len(failed) / len(found),
    }
    worst = [f"{outcome.module}: {-reduced:+.2%}" for reduced, outcome in found if outcome.ok]
    artifacts = {
        "worst_modules": "\n".join(worst[:SHOWN]),
        "failures": "\n\n".join(
            f"{outcome.module}: {outcome.kind}\n{outcome.stderr}" for outcome in failed[:SHOWN]
        ),
    }
    return EvaluationResult(metrics, {name: text for name, text in artifacts.items() if text})

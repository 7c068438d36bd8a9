"""A running compilation, and its outcome."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from shmbridge._jobs.supervised import Report, SupervisedProcess
from shmbridge._llvm import preload
from shmbridge.errors import InvalidError, ending, error_text
from shmbridge.training._corpus import Module
from shmbridge.training.scores import Score

NOT_STARTED, KILLED = 127, int(signal.SIGKILL)
# Nobody's advice sends these.
SENT = {"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGKILL", "SIGXCPU"}
LABEL = 150  # characters of a module's name in a label


class OutcomeKind(StrEnum):
    """How a compilation ended. Each is also a text for logs and tables, such as "ok"."""

    OK = "ok"
    #: another exit status than 0
    EXIT_STATUS = "exit status"
    #: it crashed, or somebody killed it
    SIGNAL = "signal"
    #: it exited with another status than 0, or crashed, but compiles the module without advice
    ADVICE = "advice"
    TIME_LIMIT = "time limit"
    MEMORY_LIMIT = "memory limit"
    #: it reported success, but its output cannot be scored
    NO_SCORE = "no score"
    NOT_STARTED = "not started"
    #: the trainer ended it, or its supervisor was killed (`stderr` has the reason)
    ENDED = "ended"

    __repr__ = str.__repr__


@dataclass(frozen=True)
class Outcome:
    """How a compilation ended.

    Attributes:
        kind: An `OutcomeKind`.
        module: The module's name.
        exit: The exit status; the negative number of the signal that ended it; 127 if it did not
            start, as in a shell.
        signal: The signal that ended it, such as "SIGSEGV". "": none.
        stderr: The end of its stderr, at most 4096 bytes, followed by the reason if there is no
            score.
        seconds: How long it took, without waiting for advice.
        cpu: Seconds of CPU of all its processes.
        memory: The maximum number of bytes that one of its processes used.
        scores: The scores, by name. Empty unless the kind is "ok".
        defaulted: How many decisions used a default advice, in a task with `llvm`. These are not
            the model's decisions.
        command: A shell command that repeats the compilation.
    """

    kind: OutcomeKind
    module: str
    exit: int = -KILLED
    signal: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    defaulted: int = 0
    command: str = ""

    @property
    def ok(self) -> bool:
        """Did all go well?"""
        return self.kind == OutcomeKind.OK


def label_of(module: Module, number: int | None = None) -> str:
    """A label that is valid in URLs. The number distinguishes the compilations of one module."""
    name = re.sub(r"[^\w./+-]", "_", module.name)[-LABEL:]
    return name if number is None else f"{name}@{number}"


class Compilation:
    """A running compilation, until its job is closed.

    Args:
        module, scores: As in the task.
        job: The compiler.
        command: A shell command that repeats it.
        asks: It gets advice. Behind its end, `advised` is whether it may have obeyed any.
    """

    def __init__(
        self,
        module: Module,
        job: SupervisedProcess,
        scores: Mapping[str, Score],
        command: str,
        asks: bool,
    ) -> None:
        self.module, self.advised = module, asks
        self.job, self._scores, self._command = job, scores, command

    def finish(self) -> Outcome:
        """Waits for the end, and scores the output."""
        report, scores, why = self.job.wait(), dict[str, float](), ""
        if _kind(report) == OutcomeKind.OK:
            try:
                scores = {
                    name: _scored(score, self.job.output) for name, score in self._scores.items()
                }
            except Exception as error:
                report, why = self.job.look_again(), error_text(error)
        kind, stderr = _kind(report), report.stderr
        if why and kind == OutcomeKind.OK:
            kind, stderr = OutcomeKind.NO_SCORE, f"{stderr}\n{why}".lstrip()
        status = (
            NOT_STARTED if report.unstarted else -KILLED if report.status is None else report.status
        )
        return Outcome(
            kind,
            self.module.name,
            status,
            ending(status) if status < 0 else "",
            stderr or report.unstarted,
            report.seconds,
            report.cpu,
            report.bytes,
            scores,
            self._defaulted(),
            self._command,
        )

    def _defaulted(self) -> int:
        """How many decisions took a default. If all did, a warning says why, once for each
        reason."""
        counts = []
        with contextlib.suppress(OSError, ValueError):
            text = (self.job.folder / "report").read_text(errors="replace")
            counts = [count for count in preload.counts_of(text) if count.asked]
        if counts and all(count.defaulted == count.asked for count in counts):
            self.advised = False
            warnings.warn(
                f"a compilation took the default advice for all its decisions: {counts[0].why}",
                stacklevel=2,
            )
        return sum(count.defaulted for count in counts)


def _kind(report: Report) -> OutcomeKind:
    if report.unstarted:
        return OutcomeKind.NOT_STARTED
    if report.limit or report.status is None:
        return OutcomeKind(report.limit or "ended")
    if report.status == 0:
        return OutcomeKind.OK
    return OutcomeKind.EXIT_STATUS if report.status > 0 else OutcomeKind.SIGNAL


def _scored(score: Score, output: Path) -> float:
    if not output.exists():
        raise InvalidError(
            "expected an output, found none: the compiler wrote nothing to the task's {output}"
        )
    value = score(output)
    if not math.isfinite(value):
        raise InvalidError(f"expected a finite score, found {value}")
    return value if isinstance(value, float) else float(value)


def warn_of_threads(compilers: int) -> None:
    """Warns, always in the same words, if PyTorch in this process and the compilers want more than
    the CPUs."""
    torch, cpus = sys.modules.get("torch"), len(os.sched_getaffinity(0))
    threads = torch.get_num_threads() if torch else 1
    if threads > 1 and threads * compilers > cpus:
        warnings.warn(
            f"PyTorch's {threads} threads and the compilers compete for {cpus} CPUs, which can "
            "make training several times slower: call torch.set_num_threads(1), or set "
            "OMP_NUM_THREADS=1",
            stacklevel=2,
        )

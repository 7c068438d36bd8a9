"""shmbridge replay: asks a host what a training log holds, as the compiler did, and compares the
advice."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from shmbridge._runner.runner import Runner
from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import EXISTING_FILE
from shmbridge.errors import DroppedError, InexactError, MismatchError, ModelError, TooLargeError
from shmbridge.hosts._relay import START
from shmbridge.logs import Record, TrainingLog

SHOWN = 5  # different errors
# The host lives and has said no.
ANSWERED = (ModelError, DroppedError, InexactError, MismatchError, TooLargeError)


@dataclass
class Comparison:
    """What a host advised, beside what the log holds."""

    same: int = 0
    different: int = 0
    unknown: int = 0  # the log has no advice to compare with
    largest: float = 0.0  # difference of two floats
    nanoseconds: list[int] = field(default_factory=list)  # of each question
    errors: dict[str, int] = field(default_factory=dict)

    def ask(self, runner: Runner, record: Record) -> None:
        """Asks as the compiler did. Errors: those of evaluate that say more than that this question
        has no answer."""
        start = time.perf_counter_ns()
        try:
            runner.evaluate(record.question, dtype=record.layout.want)
        except ANSWERED as error:
            text = f"{type(error).__name__}: {error}"
            self.errors[text] = self.errors.get(text, 0) + 1
            return
        self.nanoseconds.append(time.perf_counter_ns() - start)
        self._compare(record.advice, runner.advice)

    def _compare(self, logged: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        if not logged:
            self.unknown += 1
            return
        if len(logged) == len(found) == 1:  # whatever it is called
            pairs = list(zip(logged.values(), found.values(), strict=True))
        else:
            pairs = [(value, found.get(name)) for name, value in logged.items()]
        same = len(logged) == len(found)
        for before, now in pairs:
            same &= self._same(before, now)
        self.same += same
        self.different += not same

    def _same(self, before: Any, now: Any) -> bool:
        if not isinstance(now, (bool, int, float, np.ndarray, np.generic)):
            return False
        now = np.asarray(now)
        # A compiler that expects one element takes it in any shape.
        if now.size == before.size == 1:
            now = now.reshape(before.shape)
        if now.shape != before.shape:
            return False
        # One NaN is as good as another.
        equal = (before == now) | ((before != before) & (now != now))
        if before.dtype.kind not in "biu" and not equal.all():
            with np.errstate(all="ignore"):
                far = np.abs(before.astype(np.float64) - now.astype(np.float64))[~equal]
            self.largest = max(self.largest, float(np.nan_to_num(far, nan=np.inf).max()))
        return bool(equal.all())

    def summary(self) -> str:
        """Counts, and how long a question took."""
        failed = sum(self.errors.values())
        asked = len(self.nanoseconds) + failed
        text = (
            f"{asked} questions: the same advice for {self.same}, different for {self.different}, "
            f"errors for {failed}"
        )
        if self.unknown:
            text += f", nothing to compare with for {self.unknown}"
        if self.largest:
            text += f"; the largest difference is {self.largest:g}"
        if self.nanoseconds:
            middle, high = np.percentile(self.nanoseconds, (50, 99)) / 1e3
            text += f"\ntime per question: median {middle:.1f} us, 99th percentile {high:.1f} us"
        return text


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=EXISTING_FILE)
@click.argument("target")
@click.option(
    "--check", is_flag=True, help="Exit with status 1 unless all advice equals the log's."
)
def replay(logs: tuple[Path, ...], target: str, check: bool) -> None:
    """Ask a host the questions of a log, and compare the advice.

    It asks the host at TARGET all questions in LOG, in their order.

    LOG is a file of shmbridge record or serve --record (pass all files: LOG LOG.2 …) or of clang's
    and opt's -training-log=FILE, whose last feature is the advice. TARGET must answer within 10 s,
    or its connect_timeout.
    """
    out, comparison = console(), Comparison()
    opened = [TrainingLog(path) for path in logs]
    with Runner(target, connect_timeout=START) as runner:
        for log in opened:
            for record in log:
                comparison.ask(runner, record)
    for text, times in list(comparison.errors.items())[:SHOWN]:
        out.print(f"[red]{times} times:[/] {escape(text)}", soft_wrap=True)
    out.print(comparison.summary(), soft_wrap=True)
    if check and (comparison.different or comparison.errors):
        raise SystemExit(1)

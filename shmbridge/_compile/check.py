"""Compares a compiled model with the original, on random inputs."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import shmbridge
from shmbridge._compile.questions import Inputs, questions
from shmbridge._compile.toolchain import Built, CompileError
from shmbridge._compile.wrap import Port
from shmbridge._values.agreement import Difference, difference
from shmbridge.errors import ModelError

ROUNDS, NAN_ROUNDS = 12, 3
# Of the whole comparison, which may compute anything; no question is begun after ENOUGH seconds.
SECONDS, ENOUGH, BYTES = 60, 20, 4 << 30
RESERVED = 4 << 30  # bytes of addresses that a runner takes for its request
# inputs that the original may refuse before we give up, since an integer may be an index
REFUSED = 20
OWN_INPUTS = "if compilers ask other inputs, ask both models yours: onnx:// and aot://"


def check(built: Built, library: Path, seed: int = 0) -> str:
    """The verdict, in words: exact, within tolerance, or not checked. Errors: CompileError when the
    model differs."""
    ask = partial(_check, built, library, seed)
    return _limited(ask) if built.separate else ask()


def _limited(work: Callable[[], str]) -> str:
    """The result of a function that is called in a process of its own. Errors: CompileError, of the
    function or since it died."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's threads do not matter
        child = os.fork()
    if not child:
        with open("/proc/self/statm", "rb") as statm:  # what this process has is not the check's
            had = int(statm.read().split()[5]) * resource.getpagesize()
        limit = had + RESERVED + BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            said = "+" + work()
        except BaseException as error:
            said = "-" + (str(error) or type(error).__name__)
        with open(writer, "wb") as pipe:
            pipe.write(said.encode(errors="replace"))
        os._exit(0)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            said = pipe.read().decode() if select.select([pipe], [], [], SECONDS)[0] else "late"
    finally:
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if said == "late":
        return f"not checked: the answers took more than {SECONDS} seconds"
    if not said:
        raise CompileError(f"do not deploy it: asking it ended with {signal.Signals(-status).name}")
    if said[0] == "-":
        raise CompileError(said[1:])
    return said[1:]


def _check(built: Built, library: Path, seed: int) -> str:
    weights = f"?weights={built.weights}" if built.weights else ""
    with shmbridge.connect(f"aot://{library}{weights}") as runner:
        try:
            return _random_check(built, runner, seed)
        except CompileError as error:
            raise CompileError(
                f"do not deploy it: {error}; nothing was written (use --no-check to write it)"
            ) from None


def _random_check(built: Built, runner: shmbridge.Runner, seed: int) -> str:
    try:
        found = _compare(built, runner, questions(built, seed))
        return f"{found.verdict(built)}{_with_nan(built, runner, seed)}\n  {OWN_INPUTS}"
    except CompileError as error:
        # A logarithm or root of less than 0 is no number, of which two compilers may make different
        # things.
        try:
            found = _compare(built, runner, questions(built, seed, np.abs))
        except CompileError:
            raise error from None
        return (
            f"{found.verdict(built)}\n  none of them negative; on negative ones, {error}\n"
            f"  {OWN_INPUTS}"
        )


def _with_nan(built: Built, runner: shmbridge.Runner, seed: int) -> str:
    """What the verdict says of NaN, of which two runtimes may make different things."""
    if not any("float" in port.dtype for port in built.inputs):
        return ""
    asked = questions(built, seed, partial(_some_nan, np.random.default_rng(seed)))
    try:
        found = _compare(built, runner, asked, NAN_ROUNDS)
    except CompileError as error:
        return f"\n  where inputs are NaN, {error}"
    return "\n  the same where inputs are NaN" if found.asked else ""


def _some_nan(rng: np.random.Generator, array: Any) -> Any:
    if "float" not in array.dtype.name:
        return array
    return np.where(rng.random(array.shape) < 0.3, np.nan, array).astype(array.dtype)


@dataclass
class _Comparison:
    """What was asked, and the greatest difference."""

    asked: int = 0
    refused: int = 0
    stopped: int = 0  # where the library alone fails, and says so
    why: str = ""  # the first refusal
    unstable: int = 0  # where the original's own answer changes as much with its inputs
    worst: tuple[Difference, Port] | None = None
    ranges: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def add(self, ports: Sequence[Port], arrays: Inputs) -> None:
        """Counts one question."""
        self.asked += 1
        for port, array in zip(ports, arrays, strict=True):
            if np.size(array):
                low, high = self.ranges.get(port.name, (array.flat[0], array.flat[0]))
                self.ranges[port.name] = min(low, np.min(array)), max(high, np.max(array))

    def verdict(self, built: Built) -> str:
        """Whether the model may be deployed, and what was tried."""
        if not self.asked:
            return (
                f"not checked: {built.runtime} and the library take none of "
                f"{self.refused + self.stopped} random inputs: {self.why}"
            )
        shown = ", ".join(
            f"{name} {_number(low)} to {_number(high)}" for name, (low, high) in self.ranges.items()
        )
        tried = f"{self.asked} random inputs{f' ({shown})' if shown else ''}"
        if self.refused:
            tried += f"; {built.runtime} rejected {self.refused} more"
        if self.stopped:
            tried += f"; the library rejected {self.stopped} more: {self.why}"
        if self.unstable:
            tried += f"; not compared on {self.unstable} more, where rounding decides"
        if not self.worst:
            return f"checked: exact: equal to {built.runtime}, on {tried}"
        apart, port = self.worst
        return (
            f"checked: within tolerance: differs from {built.runtime} by {apart.largest:.2g} at "
            f"most (allowed: {apart.allowed:.2g}; {port.name}, whose values reach "
            f"{apart.scale:.2g}), on {tried}"
        )


def _compare(
    built: Built,
    runner: shmbridge.Runner,
    asked: Iterable[Callable[[], Inputs]],
    rounds: int = ROUNDS,
) -> _Comparison:
    """Asks both. Errors: CompileError at the first answer that differs."""
    found, until = _Comparison(), time.monotonic() + ENOUGH
    for question in asked:
        if found.asked == rounds or time.monotonic() > until:
            break
        try:
            arrays = [np.asarray(array) for array in question()]
            expected = built.reference(arrays)
        except Exception as error:  # whatever another runtime raises; MemoryError
            found.refused += 1
            found.why = found.why or str(error) or type(error).__name__
            if found.refused >= REFUSED:
                break
            continue
        try:
            runner.evaluate({p.name: array for p, array in zip(built.inputs, arrays, strict=True)})
        except ModelError as error:  # a check of the values, which asks the compiler itself
            found.stopped += 1
            found.why = found.why or str(error)
            if found.stopped >= REFUSED:
                break
            continue
        answers = [np.asarray(runner.advice[port.name]) for port in built.outputs]
        _judge(built, arrays, expected, answers, found)
    return found


def _judge(
    built: Built, arrays: Inputs, expected: Inputs, answers: Inputs, found: _Comparison
) -> None:
    """Counts one question. Errors: CompileError if an answer differs, unless rounding decides."""
    for i, port in enumerate(built.outputs):
        try:
            apart = difference(expected[i], answers[i])
        except ValueError as error:
            raise CompileError(f"{port}: not as {built.runtime}: {error}") from error
        if not apart.within:
            if _moves(built, arrays, i, expected[i]) >= apart.largest:
                found.unstable += 1
                return
            raise CompileError(
                f"{port} differs from {built.runtime} by {apart.largest:.3g} where values reach "
                f"{apart.scale:.3g}"
            )
        if apart.largest > (found.worst[0].largest if found.worst else 0):
            found.worst = apart, port
    found.add(built.inputs, arrays)


def _moves(built: Built, arrays: Inputs, i: int, expected: Any) -> float:
    """How far the original's own answer moves with its inputs' last digits."""
    most = 0.0
    for turn in (1e-6, -1e-6, 2e-6, -2e-6):
        moved = [a + (a * turn).astype(a.dtype) if a.dtype.kind == "f" else a for a in arrays]
        try:
            most = max(most, difference(expected, built.reference(moved)[i]).largest)
        except Exception:  # whatever another runtime raises
            continue
    return most


def _number(value: Any) -> str:
    return f"{float(value):.2g}" if np.asarray(value).dtype.kind not in "biu" else str(int(value))

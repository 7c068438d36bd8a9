"""Compares a compiled model with the original, on random inputs or the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import shmbridge
from shmbridge._compile.toolchain import Built, CompileError
from shmbridge._compile.wrap import Port
from shmbridge.errors import ModelError

ROUNDS = 12
# inputs that the original may refuse before we give up, since an integer may be an index
REFUSED = 20
FAR = 1000  # an integer that is a length must not take all memory
OPEN = 2  # what an open dimension is
# Of the output's greatest value, or of 1.
TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}
OWN_INPUTS = "--check-inputs FILE.npz asks it inputs of yours"
Inputs = Sequence[Any]  # an array for each port


def check(built: Built, library: Path, given: Sequence[Inputs] = (), seed: int = 0) -> str:
    """The verdict, in words: exact, within tolerance, or not checked. Errors: CompileError when the
    model differs."""
    weights = f"?weights={built.weights}" if built.weights else ""
    with shmbridge.connect(f"aot://{library}{weights}") as runner:
        try:
            if given:
                questions = [partial(tuple, arrays) for arrays in given]
                return _compare(built, runner, questions, "given").verdict(built)
            return _random_check(built, runner, seed)
        except CompileError as error:
            raise CompileError(
                f"do not deploy it: {error}; nothing was written (use --no-check to write it)"
            ) from None


def _random_check(built: Built, runner: shmbridge.Runner, seed: int) -> str:
    try:
        found = _compare(built, runner, _questions(built, seed), "random")
        return f"{found.verdict(built)}\n  {OWN_INPUTS}"
    except CompileError as error:
        # A logarithm or root of less than 0 is no number, of which two compilers may make different
        # things.
        try:
            found = _compare(built, runner, _questions(built, seed, np.abs), "random")
        except CompileError:
            raise error from None
        return (
            f"{found.verdict(built)}\n  none of them negative; on negative ones, {error}: if the "
            f"compiler asks such, {OWN_INPUTS}"
        )


def load_inputs(file: Path, ports: Sequence[Port]) -> list[Inputs]:
    """Questions from an .npz: an array for each input's name, of the input's shape, or with an
    additional first dim for several questions. Errors: CompileError."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    # TypeError: an .npy has one array without a name.
    except (OSError, ValueError, TypeError) as error:
        raise CompileError(
            f"{file}: expected arrays from numpy.savez(FILE, NAME=ARRAY, …): {error}"
        ) from error
    columns = [_column(file, port, found.pop(port.name, None)) for port in ports]
    if found:
        raise CompileError(
            f"{file}: expected only the model's inputs ({', '.join(map(str, ports))}), found "
            f"also {', '.join(found)}"
        )
    counts = {len(column) for column in columns}
    if len(counts) != 1 or counts == {0}:
        raise CompileError(
            f"{file}: expected the same number of questions, at least one, for every input, found "
            f"{sorted(counts)}"
        )
    return list(zip(*columns, strict=True))


def _column(file: Path, port: Port, value: Any) -> Any:
    """One input's arrays, for each of the questions."""
    # As numpy stores it.
    if value is not None and port.dtype == "bfloat16" and value.dtype == np.dtype("V2"):
        value = value.view(_dtype(port))
    if value is not None and value.dtype == _dtype(port):
        for many in (value[None], value):
            if many.ndim == len(port.dims) + 1 and all(
                n in (-1, m) for n, m in zip(port.dims, many.shape[1:], strict=True)
            ):
                return many
    what = "nothing" if value is None else f"{value.dtype}{list(value.shape)}"
    raise CompileError(f"{file}: expected {port}, or with one more dim in front, found {what}")


@dataclass
class _Comparison:
    """What was asked, and the greatest difference: how large, where values reach what, of which
    port."""

    kind: str
    asked: int = 0
    refused: int = 0
    stopped: int = 0  # where the library alone fails, and says so
    why: str = ""  # the first refusal
    worst: tuple[float, float, Port | None] = (0.0, 0.0, None)
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
                f"{self.refused + self.stopped} {self.kind} inputs: "
                f"{self.why}"
            )
        difference, scale, port = self.worst
        shown = ", ".join(
            f"{name} {_number(low)} to {_number(high)}" for name, (low, high) in self.ranges.items()
        )
        tried = f"{self.asked} {self.kind} inputs{f' ({shown})' if shown else ''}"
        if self.refused:
            tried += f"; {built.runtime} rejected {self.refused} more"
        if self.stopped:
            tried += f"; the library rejected {self.stopped} more: {self.why}"
        if not port:
            return f"checked: exact: equal to {built.runtime}, on {tried}"
        return (
            f"checked: within tolerance: differs from {built.runtime} by {difference:.2g} at most "
            f"(allowed: {_allowed(port, scale):.2g}; {port.name}, whose values reach "
            f"{scale:.2g}), on {tried}"
        )


def _compare(
    built: Built, runner: shmbridge.Runner, questions: Iterable[Callable[[], Inputs]], kind: str
) -> _Comparison:
    """Asks both. Errors: CompileError at the first answer that differs."""
    found = _Comparison(kind)
    for question in questions:
        try:
            arrays = question()
            expected = built.reference(arrays)
        except Exception as error:  # whatever another runtime raises; MemoryError
            if kind == "given":
                raise CompileError(
                    f"{built.runtime} does not take the given inputs: {error}"
                ) from error
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
        found.add(built.inputs, arrays)
        for port, right in zip(built.outputs, expected, strict=True):
            difference, scale = _difference(built.runtime, port, right, runner.advice[port.name])
            if difference > found.worst[0]:
                found.worst = difference, scale, port
        if found.asked == ROUNDS and kind == "random":
            break
    return found


# ---- Random inputs ----


def _questions(
    built: Built, seed: int, change: Callable[[Any], Any] = np.asarray
) -> Iterator[Callable[[], Inputs]]:
    """Endless inputs as models get them. An integer may be an index or a length: below 2, then up
    to each size of an input, and as far as the model accepts."""
    rng, ports = np.random.default_rng(seed), built.inputs

    def inputs(low: int, high: int) -> Inputs:
        return [change(_random(rng, port, high, low)) for port in ports]

    yield from [partial(inputs, 0, 2)] * 2
    sizes = {n + more for port in ports for n in port.dims if n > 1 for more in (0, 1)}
    integers = any("int" in port.dtype for port in ports)
    accepted = _accepted(built, rng) if integers else (0, 2)
    bounds = [(0, 2), accepted, *((0, size) for size in sorted(sizes))]
    while True:
        yield partial(inputs, *bounds[rng.integers(len(bounds))])


def _accepted(built: Built, rng: np.random.Generator) -> tuple[int, int]:
    """A range of integers, within FAR of 0, that the original accepts."""

    def accepts(low: int, high: int) -> bool:
        try:
            built.reference([_random(rng, port, high, low) for port in built.inputs])
        except Exception:  # whatever another runtime raises
            return False
        return True

    high, refused = 2, FAR + 1
    while high + 1 < refused:
        middle = FAR if refused > FAR else (high + refused) // 2
        if accepts(0, middle):
            high = middle
        else:
            refused = middle
    return (-high if accepts(-high, high) else 0), high


def _random(rng: np.random.Generator, port: Port, bound: int, low: int = 0) -> Any:
    shape = tuple(OPEN if size < 0 else size for size in port.dims)
    if "float" in port.dtype:
        return rng.standard_normal(shape).astype(_dtype(port))
    most = 1 if port.dtype == "bool" else np.iinfo(port.dtype).max
    low = max(low, 0 if port.dtype == "bool" else np.iinfo(port.dtype).min)
    return rng.integers(low, min(bound, most + 1), shape).astype(port.dtype)


def _dtype(port: Port) -> Any:
    if port.dtype != "bfloat16":
        return np.dtype(port.dtype)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


# ---- The difference ----


def _difference(runtime: str, port: Port, right: Any, value: Any) -> tuple[float, float]:
    """The greatest difference, and the greatest value."""
    right, value = np.asarray(right), np.asarray(value)
    if right.shape != value.shape:
        raise CompileError(
            f"{port}: {runtime} gives the shape {list(right.shape)}, the compiled model "
            f"{list(value.shape)}"
        )
    a, b = right.astype(np.float64), value.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinities of both signs
        difference = float(np.max(np.abs(a - b), where=~same, initial=0.0))
    scale = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
    if not difference <= _allowed(port, scale):  # also when it is no number
        raise CompileError(
            f"{port} differs from {runtime} by {difference:.3g} where values reach {scale:.3g}"
        )
    return difference, scale


def _allowed(port: Port, scale: float) -> float:
    return TOLERANCE.get(port.dtype, 0) * max(1.0, scale)


def _number(value: Any) -> str:
    return f"{float(value):.2g}" if np.asarray(value).dtype.kind not in "biu" else str(int(value))

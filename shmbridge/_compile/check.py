"""Compares a compiled model with the original, on random inputs."""

import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shmbridge
from shmbridge._compile.toolchain import Built, CompileError
from shmbridge._compile.wrap import Port
from shmbridge.errors import ModelError, ShmbridgeError, ending

ROUNDS = 12
# Of the whole comparison, which may compute anything; no question is begun after ENOUGH seconds.
SECONDS, ENOUGH, BYTES = 60, 20, 4 << 30
RESERVED = 4 << 30  # bytes of addresses that a runner takes for its request
# inputs that prove nothing before we give up: one of both may refuse an integer that is an index
REJECTED = 80
OWN_INPUTS = "if compilers ask other inputs, ask both models yours: onnx:// and aot://"
FAR = (4, 16, 64, 256, 1000)  # also of integers; one that is a length must not take all memory
OPEN = (2, 1, 3)  # what an open dimension is, in turns
SCALES = (1, 1e3, 1e6)  # of floats: a threshold may be far from 0
# Of the output's greatest value, or of 1; other dtypes must be equal.
TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}
Inputs = Sequence[Any]  # an array for each port


class Difference(NamedTuple):
    """Of two arrays."""

    largest: float  # NaN and infinities agree with themselves
    scale: float  # the greatest finite value
    allowed: float

    @property
    def within(self) -> bool:
        return self.largest <= self.allowed  # not when it is no number


def difference(expected: Any, found: Any) -> Difference:
    """Compares two arrays, whose tolerance is that of the expected dtype. Errors: ValueError for
    different shapes."""
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.shape != found.shape:
        raise ValueError(f"expected the shape {list(expected.shape)}, found {list(found.shape)}")
    a, b = expected.astype(np.float64), found.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinities of both signs
        largest = float(np.max(np.abs(a - b), where=~same, initial=0.0))
    scale = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
    return Difference(largest, scale, TOLERANCE.get(str(expected.dtype), 0) * max(1.0, scale))


def check(built: Built, library: Path, seed: int = 0) -> str:
    """The verdict, in words: exact, within tolerance, or not checked. Errors: CompileError when the
    model differs."""
    ask = partial(_check, built, library, seed)
    return _limited(ask) if built.separate else ask()


def _limited(work: Callable[[], str]) -> str:
    """Calls a function in a forked process, with limits. Errors: CompileError, also if that
    died."""
    reader, writer = Pipe(duplex=False)
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
            writer.send((work(), ""))
        except BaseException as error:
            writer.send(("", str(error) or type(error).__name__))
        os._exit(0)
    writer.close()
    late = f"not checked: the answers took more than {SECONDS} seconds"
    try:
        said, why = reader.recv() if reader.poll(SECONDS) else (late, "")
    except EOFError:
        said = why = ""
    finally:
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not said:
        raise CompileError(why or f"do not deploy it: asking it ended with {ending(status)}")
    return str(said)


def _check(built: Built, library: Path, seed: int) -> str:
    with shmbridge.connect(f"aot://{library}") as runner:
        try:
            return verdict(built, runner, seed)[1]
        except CompileError as error:
            raise CompileError(
                f"do not deploy it: {error}; nothing was written (use --no-check to write it)"
            ) from None


def verdict(built: Built, runner: shmbridge.Runner, seed: int = 0) -> tuple[bool, str]:
    """As `check`, of what a runner answers; and whether it agreed wherever inputs are numbers."""
    try:
        agrees, said = _compare(built, runner, _questions(built, seed))
        return agrees, f"{said}{_with_nan(built, runner, seed)}\n  {OWN_INPUTS}"
    except CompileError as error:
        # A logarithm or root of less than 0 is no number, of which two compilers may make different
        # things.
        try:
            _, said = _compare(built, runner, _questions(built, seed, np.abs))
        except CompileError:
            raise error from None
        said += f"\n  none of them negative; on negative ones, {error}\n  {OWN_INPUTS}"
        return False, said


def _with_nan(built: Built, runner: shmbridge.Runner, seed: int) -> str:
    """What the verdict says of NaN, of which two runtimes may make different things."""
    if not any("float" in port.dtype for port in built.inputs):
        return ""
    rng = np.random.default_rng(seed)

    def some(array: Any) -> Any:
        if "float" not in array.dtype.name:
            return array
        return np.where(rng.random(array.shape) < 0.3, np.nan, array).astype(array.dtype)

    try:
        agrees, _ = _compare(built, runner, _questions(built, seed, some), nan=True)
    except CompileError as error:
        return f"\n  where inputs are NaN, {error}"
    return "\n  the same where inputs are NaN" if agrees else ""


def _compare(
    built: Built,
    runner: shmbridge.Runner,
    asked: Iterable[Callable[[], Inputs]],
    nan: bool = False,
) -> tuple[bool, str]:
    """Asks both: whether they agree, and what was tried. nan: an answer may be NaN alone. Errors:
    CompileError at the first answer that differs."""
    compared = rejected = unstable = 0
    ranges = dict[str, tuple[float, float]]()
    why, worst, until = "", Difference(0, 0, 0), time.monotonic() + ENOUGH
    for question in asked:
        if compared == ROUNDS or rejected + unstable == REJECTED or time.monotonic() > until:
            break
        try:
            arrays = [np.asarray(array) for array in question()]
            expected = built.reference(arrays)
            runner.evaluate({p.name: array for p, array in zip(built.inputs, arrays, strict=True)})
        except Exception as error:  # whatever another runtime raises; the library's own checks
            if isinstance(error, ShmbridgeError) and not isinstance(error, ModelError):
                raise
            rejected, why = rejected + 1, why or str(error) or type(error).__name__
            continue
        apart = _worst(built, arrays, expected, runner.advice)
        flat = np.concatenate([np.ravel(np.asarray(each, float)) for each in expected])
        if apart is None or (not nan and flat.size and np.isnan(flat).all()):
            unstable += 1
            continue
        compared += 1
        worst = max(worst, apart)
        for port, array in zip(built.inputs, arrays, strict=True):
            if np.size(array):
                low, high = float(np.min(array)), float(np.max(array))
                least, most = ranges.get(port.name, (low, high))
                ranges[port.name] = min(least, low), max(most, high)
    if not compared:
        of = (
            f"{rejected} random inputs were rejected: {why}"
            if rejected
            else "rounding decides, or no answer has a number"
        )
        return False, f"not checked: {of}"
    shown = ", ".join(f"{name} {low:.3g} to {high:.3g}" for name, (low, high) in ranges.items())
    tried = f"{compared} random inputs" + (f" ({shown})" if shown else "")
    tried += f"; {rejected} more were rejected: {why}" if rejected else ""
    tried += f"; not compared on {unstable} more, where rounding decides" if unstable else ""
    if not worst.largest:
        return True, f"checked: exact: equal to {built.runtime}, on {tried}"
    return True, (
        f"checked: within tolerance: differs from {built.runtime} by {worst.largest:.2g} at most, "
        f"where values reach {worst.scale:.2g} (allowed: {worst.allowed:.2g}), on {tried}"
    )


def _worst(
    built: Built, arrays: Inputs, expected: Inputs, advice: Mapping[str, Any]
) -> Difference | None:
    """The greatest difference of one question's answers; None where rounding decides. Errors:
    CompileError."""
    worst = Difference(0, 0, 0)
    for i, port in enumerate(built.outputs):
        try:
            apart = difference(expected[i], advice[port.name])
        except ValueError as error:
            raise CompileError(f"{port}: not as {built.runtime}: {error}") from error
        if not apart.within:
            if _moves(built, arrays, i, expected[i]) >= apart.largest:
                return None
            raise CompileError(
                f"{port} differs from {built.runtime} by {apart.largest:.3g} where values reach "
                f"{apart.scale:.3g}"
            )
        worst = max(worst, apart)
    return worst


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


# ---- Random inputs ----


def _questions(
    built: Built, seed: int, change: Callable[[Any], Any] = np.asarray
) -> Iterator[Callable[[], Inputs]]:
    """Endless inputs as models get them. An integer may be an index or a length: below 2, then up
    to each size of an input, and as far as the model accepts, which refuses the others."""
    rng, ports, turn = np.random.default_rng(seed), built.inputs, iter(range(1 << 30))

    def inputs(low: int, high: int) -> Inputs:
        at = next(turn)
        scale, size = SCALES[at % len(SCALES)], OPEN[at % len(OPEN)]
        return [change(_random(rng, port, high, low, scale, size)) for port in ports]

    yield from [partial(inputs, 0, 2)] * 3
    sizes = {n + more for port in ports for n in port.dims if n > 1 for more in (0, 1)}
    bounds = [(0, 2), *((0, size) for size in sorted(sizes))]
    bounds += [(low, far) for far in FAR for low in (0, -far)]
    while True:
        yield partial(inputs, *bounds[rng.integers(len(bounds))])


def _random(rng: Any, port: Port, bound: int, low: int, scale: float, open_size: int) -> Any:
    shape = tuple(open_size if size < 0 else size for size in port.dims)
    if "float" in port.dtype:
        if port.dtype == "bfloat16":
            import ml_dtypes  # noqa: F401 # registers the dtype with numpy
        scale = min(scale, 1e3) if port.dtype == "float16" else scale
        return np.asarray(rng.standard_normal(shape) * scale).astype(port.dtype)
    most = 1 if port.dtype == "bool" else np.iinfo(port.dtype).max
    low = max(low, 0 if port.dtype == "bool" else np.iinfo(port.dtype).min)
    return np.asarray(rng.integers(low, min(bound, most + 1), shape)).astype(port.dtype)

"""Does a compiled model give what the original gives?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shmbridge
from shmbridge.compile.toolchain import Built, CompileError
from shmbridge.compile.wrap import Port

ROUNDS = 5
OPEN = 2  # what an open dimension is
TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 5e-2,
    "float32": 2e-4,
    "float64": 1e-9,
}  # of the output's greatest value, or of 1


def check(built: Built, library: Path, seed: int = 0) -> str:
    """Asks both the same, at random: how large the greatest difference was. Errors: CompileError when it is too large."""
    weights = f"?weights={built.weights}" if built.weights else ""
    with shmbridge.connect(f"aot://{library}{weights}") as runner:
        try:
            return _ask(built, runner, np.random.default_rng(seed), negative=True)
        except CompileError as error:
            # A logarithm or root of less than 0 is no number, of which two compilers may make different things.
            try:
                return f"{_ask(built, runner, np.random.default_rng(seed), negative=False)} that are not negative; else {error}"
            except CompileError:
                raise CompileError(f"{error}: --no-check keeps it nevertheless") from None


def _ask(built: Built, runner: shmbridge.Runner, rng: np.random.Generator, negative: bool) -> str:
    greatest = (0.0, 0.0, "")
    for _ in range(ROUNDS):
        try:
            arrays = [_random(rng, port) for port in built.inputs]
            arrays = arrays if negative else [abs(array) for array in arrays]
            expected = built.reference(arrays)
        except Exception as error:  # whatever another runtime raises; MemoryError
            return f"not checked: {built.runtime} could not be asked: {error}"
        runner.evaluate(
            {port.name: array for port, array in zip(built.inputs, arrays, strict=True)}
        )
        found = [runner.advice[port.name] for port in built.outputs]
        greatest = max(greatest, *_differences(built, expected, found))
    difference, scale, name = greatest
    if not difference:
        return f"checked: exactly what {built.runtime} gives, on {ROUNDS} random inputs"
    return f'checked: differs from {built.runtime} by {difference:.2g} at most ("{name}", whose values reach {scale:.2g}), on {ROUNDS} random inputs'


def _random(rng: np.random.Generator, port: Port) -> Any:
    """Numbers as models get them; integers of 0 and 1 alone, since they may be indices."""
    shape = tuple(OPEN if size < 0 else size for size in port.dims)
    if "float" not in port.dtype:
        return rng.integers(0, 2, shape).astype(port.dtype)
    if port.dtype == "bfloat16":
        import ml_dtypes

        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return rng.standard_normal(shape).astype(port.dtype)


def _differences(
    built: Built, expected: Sequence[Any], found: Sequence[Any]
) -> list[tuple[float, float, str]]:
    """By output: the greatest difference, the greatest value, the name."""
    result = []
    for port, right, value in zip(built.outputs, expected, found, strict=True):
        right, value = np.asarray(right), np.asarray(value)
        if right.shape != value.shape:
            raise CompileError(
                f"{port}: {built.runtime} gives the shape {list(right.shape)}, the compiled model {list(value.shape)}"
            )
        a, b = right.astype(np.float64), value.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        difference = float(np.max(np.abs(a - b), where=~same, initial=0.0))
        scale = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
        if not difference <= TOLERANCE.get(port.dtype, 0) * max(
            1.0, scale
        ):  # also when it is no number
            raise CompileError(
                f"{port}: differs from {built.runtime} by {difference:.3g} where values reach {scale:.3g}"
            )
        result.append((difference, scale, port.name))
    return result

"""Whether an exported or compiled model gives what the original gives."""

from typing import Any, NamedTuple

import numpy as np

# Of the output's greatest value, or of 1; other dtypes must be equal.
TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}


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

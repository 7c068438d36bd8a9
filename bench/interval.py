"""A median and its confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass
class Interval:
    """A median with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def text(self, digits: int, scale: float = 1) -> str:
        """As "1.02 (1.01 to 1.03)"."""
        median, low, high = (
            f"{value * scale:.{digits}f}" for value in (self.median, self.low, self.high)
        )
        return f"{median} ({low} to {high})"


def interval(values: Sequence[float], resamples: int = 10_000) -> Interval:
    """Of at least one value; the same values give the same interval."""
    samples = np.asarray(values)
    chosen = np.random.default_rng(0).integers(len(samples), size=(resamples, len(samples)))
    low, high = np.percentile(np.median(samples[chosen], axis=1), [2.5, 97.5])
    return Interval(float(np.median(samples)), float(low), float(high))

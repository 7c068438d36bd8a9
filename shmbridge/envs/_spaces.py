"""Gymnasium's spaces of what compilers send and take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

try:
    from gymnasium import spaces
except ImportError as error:
    raise ImportError("environments need Gymnasium: pip install 'shmbridge[gym]'") from error

Array = np.ndarray[Any, Any]


def of_actions(actions: Any) -> Any:
    """How many there are, as a space; a space, or None, as it is."""
    return spaces.Discrete(actions) if isinstance(actions, int) else actions


def range_of(space: Any) -> tuple[int, int] | None:
    """The first of whole numbers, and how many they are; None: the space is another."""
    return (int(space.start), int(space.n)) if isinstance(space, spaces.Discrete) else None


def of_observations(features: Mapping[str, Array]) -> Any:
    """The space of observations that are like a row of these arrays."""
    return spaces.Dict({name: _space(each[0]) for name, each in features.items()})


def _space(value: Array) -> Any:
    if value.dtype == bool:
        return spaces.MultiBinary(value.shape)
    if value.dtype.kind in "iu":
        limits = np.iinfo(value.dtype)
        return spaces.Box(limits.min, limits.max, value.shape, value.dtype.type)
    return spaces.Box(-np.inf, np.inf, value.shape, value.dtype.type)

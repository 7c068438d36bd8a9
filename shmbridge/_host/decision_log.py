"""The log of decisions that `Host.serve(log=…)` and `shmbridge serve --log` write: JSON, one line
for each request."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge._values.tensor import Ragged

INLINE = 64  # elements or characters; of more than these the log keeps a digest


def entry(value: Any) -> Any:
    """A feature or advice as JSON has it: whole if it is small, else its dtype, shape and SHA-256.
    NaN and the infinities, which JSON lacks, as strings."""
    if isinstance(value, Ragged):
        return {"values": entry(value.values), "offsets": entry(value.offsets)}
    if isinstance(value, Mapping):
        return {name: entry(item) for name, item in value.items()}
    if isinstance(value, str):
        if len(value) > INLINE:
            data = value.encode(errors="surrogateescape")
            return {"str": len(value), "sha256": _sha256(data)}
        return value
    if isinstance(value, (list, tuple)):
        return [entry(item) for item in value]
    if not isinstance(value, (bool, int, float)):
        value = np.asarray(value)
        # Zeros as ones: empty lists take room, too.
        if math.prod(size or 1 for size in value.shape) > INLINE:
            form = {"dtype": str(value.dtype), "shape": list(value.shape)}
            return form | {"sha256": _sha256(value.tobytes())}
        value = (value if value.dtype.kind in "biuf" else value.astype(np.float64)).tolist()
    return _finite(value)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class DecisionLog:
    """Appends to a file. OSError where it cannot be opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Whole lines: a kill loses no decision.
        self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def write(self, features: Any, **outcome: Any) -> None:
        """features: what `entry` made of them. outcome: advice=… or error=…, and what else is to be
        kept."""
        print(json.dumps({"time": time.time(), "features": features, **outcome}), file=self._file)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

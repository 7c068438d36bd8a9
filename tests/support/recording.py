"""Training logs of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shmbridge.logs import TrainingLog

X = np.array([1, 2, 4], np.float32)


def records(path: Path) -> list[tuple[dict[str, Any], Any]]:
    return [(r.question, next(iter(r.advice.values()))) for r in TrainingLog(path)]

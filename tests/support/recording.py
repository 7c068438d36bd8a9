"""Training logs of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shmbridge.logs import TrainingLog

X = np.array([1, 2, 4], np.float32)


def records(path: Path) -> list[tuple[dict[str, Any], Any]]:
    return [(r.question, next(iter(r.advice.values()))) for r in TrainingLog(path)]


MODELS = """
import numpy as np

def total(request):
    return float(np.sum(request["x"]))

def totals(batch):
    return batch["x"].sum(axis=1)

def shifted(request):
    return float(np.sum(request["x"])) + 0.25 * (request["x"][0] > 1)

def inline(request):
    assert request["context"] == "default", dict(request)
    assert request["decision"] == "inlining_decision", dict(request)
    if request["callees"][0] > 6:
        raise ValueError("too many callees")
    return int(request["callees"][0] > 5)
"""

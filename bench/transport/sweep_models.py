"""The model of sweep.py, as a function and in files: a dense layer of float32[n] and a threshold. It
advises an int64."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Of the longest; a shorter layer has the first ones.
WEIGHTS = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)


def answer(request: Mapping[str, Any]) -> Any:
    features = request["features"]
    return int(features @ WEIGHTS[: len(features)] < 1)


def write_tflite(file: Path, n: int) -> None:
    """Its advice is a bool."""
    from support.tflite_models import Graph

    dense = Graph()
    features, total = (
        dense.tensor("features", "float32", (n,)),
        dense.tensor("sum", "float32", (1, 1)),
    )
    advice = dense.tensor("advice", "bool", (1, 1))
    weights, bias = dense.constant(WEIGHTS[None, :n]), dense.constant(np.zeros(1, np.float32))
    dense.operator("FULLY_CONNECTED", [features, weights, bias], [total])
    dense.operator("LESS", [total, dense.constant(np.float32([1]))], [advice])
    dense.write(file, {"features": features}, {"advice": advice})


def write_onnx(file: Path, n: int) -> None:
    from support import onnx_models as models

    node, to = models.node, models.T
    dense = [
        node("MatMul", "features weights", "sum"),
        node("Less", "sum limit", "below"),
        node("Cast", "below", "advice", to=to.INT64),
    ]
    ports = [("features", to.FLOAT, [n])], [("advice", to.INT64, [1])]
    constants = {"weights": WEIGHTS[:n, None], "limit": np.float32([1])}
    models.save(file, dense, *ports, constants)

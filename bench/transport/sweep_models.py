"""The model of sweep.py, as a function and in files: of float32[n] it reads one element, and advises
an int64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from program import onnx_models, tflite_graph


def answer(request: Mapping[str, Any]) -> Any:
    return int(request["features"][0] < 1)


def write_tflite(directory: Path) -> None:
    """look.tflite; its advice is a bool."""
    look = tflite_graph()
    features, first = (
        look.tensor("features", "float32", (None,)),
        look.tensor("first", "float32", (1,)),
    )
    advice = look.tensor("advice", "bool", (1,))
    begin, size = look.constant(np.array([0], np.int32)), look.constant(np.array([1], np.int32))
    look.operator("SLICE", [features, begin, size], [first])
    look.operator("LESS", [first, look.constant(np.array([1], np.float32))], [advice])
    look.write(directory / "look.tflite", {"features": features}, {"advice": advice})


def write(directory: Path) -> None:
    """look.onnx"""
    models = onnx_models()
    node, to = models.node, models.T
    look = [
        node("Gather", "features zero", "first", axis=0),
        node("Less", "first limit", "below"),
        node("Cast", "below", "advice", to=to.INT64),
    ]
    ports = [("features", to.FLOAT, ["n"])], [("advice", to.INT64, [1])]
    constants = {"zero": [0], "limit": np.float32([1])}
    models.save(directory / "look.onnx", look, *ports, constants)

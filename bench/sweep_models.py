"""The models of sweep.py: a function, and the same in files.

look: features float32[n], of which it reads one; advice int64. two_minus: x float32[100]; advice 2
- x.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from program import onnx_models, tflite_graph


def answer(request: Mapping[str, Any]) -> Any:
    """Selects the model by the request's features."""
    try:
        return int(request["features"][0] < 1)
    except KeyError:
        return 2 - request["x"]


def write_tflite(directory: Path) -> None:
    """look.tflite (its advice is a bool) and two_minus.tflite."""
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
    two_minus = tflite_graph()
    x, y = two_minus.tensor("x", "float32", (100,)), two_minus.tensor("advice", "float32", (100,))
    two_minus.operator("SUB", [two_minus.constant(np.array([2], np.float32)), x], [y])
    two_minus.write(directory / "two_minus.tflite", {"x": x}, {"advice": y})


def write(directory: Path) -> None:
    """look.onnx and two_minus.onnx."""
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
    two_minus = [node("Sub", "two x", "advice")]
    ports = [("x", to.FLOAT, [100])], [("advice", to.FLOAT, [100])]
    models.save(directory / "two_minus.onnx", two_minus, *ports, {"two": np.float32(2)})

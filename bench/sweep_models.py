"""The models of sweep.py: a function, and the same in files.

look: features float32[n], of which it reads one; advice int64. two_minus: x float32[100]; advice 2
- x.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def answer(request: Mapping[str, Any]) -> Any:
    """Selects the model by the request's features."""
    try:
        return int(request["features"][0] < 1)
    except KeyError:
        return 2 - request["x"]


def write_tflite(directory: Path) -> None:
    """look.tflite (its advice is a bool) and two_minus.tflite."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from support.tflite_models import Graph  # type: ignore[import-not-found]

    look = Graph()
    features, first = (
        look.tensor("features", "float32", (None,)),
        look.tensor("first", "float32", (1,)),
    )
    advice = look.tensor("advice", "bool", (1,))
    begin, size = look.constant(np.array([0], np.int32)), look.constant(np.array([1], np.int32))
    look.operator("SLICE", [features, begin, size], [first])
    look.operator("LESS", [first, look.constant(np.array([1], np.float32))], [advice])
    look.write(directory / "look.tflite", {"features": features}, {"advice": advice})
    two_minus = Graph()
    x, y = two_minus.tensor("x", "float32", (100,)), two_minus.tensor("advice", "float32", (100,))
    two_minus.operator("SUB", [two_minus.constant(np.array([2], np.float32)), x], [y])
    two_minus.write(directory / "two_minus.tflite", {"x": x}, {"advice": y})


def write(directory: Path) -> None:
    """look.onnx and two_minus.onnx."""
    from onnx import TensorProto, helper, save

    def model(
        name: str,
        port: str,
        size: Any,
        out: tuple[int, Any],
        nodes: list[Any],
        constants: list[Any],
    ) -> None:
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info(port, TensorProto.FLOAT, [size])],
            [helper.make_tensor_value_info("advice", out[0], [out[1]])],
            constants,
        )
        onnx = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(onnx, str(directory / f"{name}.onnx"))

    first = [
        helper.make_node("Gather", ["features", "zero"], ["first"], axis=0),
        helper.make_node("Less", ["first", "limit"], ["below"]),
        helper.make_node("Cast", ["below"], ["advice"], to=TensorProto.INT64),
    ]
    numbers = [
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("limit", TensorProto.FLOAT, [1], [1.0]),
    ]
    model("look", "features", "n", (TensorProto.INT64, 1), first, numbers)
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    model(
        "two_minus",
        "x",
        100,
        (TensorProto.FLOAT, 100),
        [helper.make_node("Sub", ["two", "x"], ["advice"])],
        [two],
    )

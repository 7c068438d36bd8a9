"""A linear model by least squares, with numpy alone: for `run.py --quick`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Linear:
    """Inlines if a weighted sum of the features' logarithms is positive.

    Args:
        features: By name, int64[rows, 1].
        decisions: LLVM's: 0 or 1, [rows].
    """

    def __init__(self, features: Mapping[str, Any], decisions: Any) -> None:
        self.names = sorted(features)
        self.weights = np.linalg.lstsq(self._inputs(features), 2.0 * decisions - 1, rcond=None)[0]

    def _inputs(self, features: Mapping[str, Any]) -> Any:
        x = np.concatenate([features[name] for name in self.names], axis=1).astype(np.float64)
        return np.append(np.sign(x) * np.log1p(np.abs(x)), np.ones((len(x), 1)), axis=1)

    def decide(self, features: Mapping[str, Any]) -> Any:
        """1: inline, 0: leave; int64[rows]."""
        return (self._inputs(features) @ self.weights > 0) * 1

    def save(self, path: Path) -> None:
        """Writes an ONNX model: an input int64[1] for each feature, the output inlining_decision
        int64[1]."""
        from onnx import TensorProto, helper
        from onnx import save as write

        steps = [
            ("Concat", self.names, "integers", {"axis": 0}),
            ("Cast", ["integers"], "x", {"to": TensorProto.DOUBLE}),
            ("Sign", ["x"], "sign", {}),
            ("Abs", ["x"], "size", {}),
            ("Add", ["size", "one"], "more", {}),
            ("Log", ["more"], "log", {}),
            ("Mul", ["sign", "log"], "scaled", {}),
            ("Concat", ["scaled", "one"], "inputs", {"axis": 0}),
            ("MatMul", ["inputs", "weights"], "score", {}),
            ("Greater", ["score", "zero"], "inline", {}),
            ("Cast", ["inline"], "inlining_decision", {"to": TensorProto.INT64}),
        ]
        constants = {"one": np.ones(1), "zero": np.zeros(1), "weights": self.weights[:, None]}
        graph = helper.make_graph(
            [helper.make_node(kind, used, [made], **told) for kind, used, made, told in steps],
            "inliner",
            [helper.make_tensor_value_info(n, TensorProto.INT64, [1]) for n in self.names],
            [helper.make_tensor_value_info("inlining_decision", TensorProto.INT64, [1])],
            [
                helper.make_tensor(name, TensorProto.DOUBLE, value.shape, value.reshape(-1))
                for name, value in constants.items()
            ],
        )
        opset = [helper.make_opsetid("", 17)]
        write(helper.make_model(graph, opset_imports=opset, ir_version=8), path)

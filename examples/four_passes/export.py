"""Writes loop.py's policy as an ONNX file, whose inputs are the compiler's features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from loop import Policy
from onnx import TensorProto, helper, numpy_helper


def export(policy: Policy, path: Path) -> None:
    """Inputs: "counters", float32[n], and "used", float32[actions]. Output: "logits",
    float32[actions]."""
    first, second = policy.weights
    inputs = {"counters": len(first) - second.shape[1] - 1, "used": second.shape[1]}
    constants = {
        "one": np.ones(1, np.float32),
        "fifth": np.array(0.2, np.float32),
        "first": first,
        "second": second,
    }
    nodes = [
        helper.make_node("Add", ["counters", "one"], ["more"]),
        helper.make_node("Log", ["more"], ["log"]),
        helper.make_node("Mul", ["log", "fifth"], ["scaled"]),
        helper.make_node("Concat", ["scaled", "used", "one"], ["x"], axis=0),
        helper.make_node("MatMul", ["x", "first"], ["sums"]),
        helper.make_node("Tanh", ["sums"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second"], ["logits"]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
        for name, size in {**inputs, "logits": second.shape[1]}.items()
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "policy", ports[:2], ports[2:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)

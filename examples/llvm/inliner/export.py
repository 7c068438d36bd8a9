"""Writes policy.py as an ONNX model: python export.py inliner.onnx (needs the package onnx)

Inputs: the features that the policy looks at, each int64[1]. Output: inlining_decision, int64[1].
The arithmetic is policy.py's, in float64 and in its order, so that the decisions are the same.
"""

from __future__ import annotations

import sys

from onnx import ModelProto, TensorProto, helper, save
from policy import BIAS, WEIGHTS


def constant(name: str, value: float) -> TensorProto:
    """A float64[1] in the file."""
    return helper.make_tensor(name, TensorProto.DOUBLE, [1], [value])


def model() -> ModelProto:
    """The ONNX model."""
    nodes, constants = [], [constant("cost_0", 0.0), constant("bias", BIAS), constant("zero", 0.0)]
    for i, (name, weight) in enumerate(WEIGHTS.items()):
        constants.append(constant(f"{name}_weight", weight))
        nodes += [
            helper.make_node("Cast", [name], [f"{name}_float"], to=TensorProto.DOUBLE),
            helper.make_node("Mul", [f"{name}_float", f"{name}_weight"], [f"{name}_cost"]),
            helper.make_node("Add", [f"cost_{i}", f"{name}_cost"], [f"cost_{i + 1}"]),
        ]
    nodes += [
        helper.make_node("Add", [f"cost_{len(WEIGHTS)}", "bias"], ["cost"]),
        helper.make_node("Less", ["cost", "zero"], ["inline"]),
        helper.make_node("Cast", ["inline"], ["inlining_decision"], to=TensorProto.INT64),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in WEIGHTS]
    outputs = [helper.make_tensor_value_info("inlining_decision", TensorProto.INT64, [1])]
    graph = helper.make_graph(nodes, "inliner", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    save(model(), sys.argv[1])

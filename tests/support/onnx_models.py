"""Small ONNX models for tests."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper


def save(path, *parts):
    """Writes a model of these parts. Returns its path as text."""
    onnx.save(model(*parts), path)
    return str(path)


def model(nodes, inputs, outputs, initializers=None):
    """A model; inputs and outputs: (name, element type, dims) or a ValueInfoProto."""

    def declared(ports):
        return [
            helper.make_tensor_value_info(*port) if isinstance(port, tuple) else port
            for port in ports
        ]

    constants = [
        numpy_helper.from_array(np.asarray(a), name) for name, a in (initializers or {}).items()
    ]
    graph = helper.make_graph(nodes, "test", declared(inputs), declared(outputs), constants)
    opsets = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("ai.onnx.ml", 3),
        helper.make_opsetid("test.ops", 1),
        helper.make_opsetid("com.microsoft", 1),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(op, inputs, outputs, **attributes):
    """A node; inputs and outputs: names apart by spaces."""
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def two_minus(path, length=8):
    """advice = argmax(2 - x)."""
    nodes = [node("Sub", "two x", "y"), node("ArgMax", "y", "advice", axis=0, keepdims=0)]
    return save(
        path, nodes, [("x", T.FLOAT, [length])], [("advice", T.INT64, [])], {"two": np.float32(2)}
    )


def perceptron(path, features=30, seed=0):
    """advice[batch, 1] of x[batch, features]."""
    random = np.random.default_rng(seed)
    nodes = [node("Gemm", "x w b", "h"), node("Relu", "h", "r"), node("Gemm", "r v c", "advice")]
    sizes = {"w": (features, 16), "b": (16,), "v": (16, 1), "c": (1,)}
    weights = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    return save(
        path,
        nodes,
        [("x", T.FLOAT, ["batch", features])],
        [("advice", T.FLOAT, ["batch", 1])],
        weights,
    )


def identity(path, element, dims):
    """advice = x, whatever that is."""
    return save(
        path, [node("Identity", "x", "advice")], [("x", element, dims)], [("advice", element, dims)]
    )


def loop(path):
    """advice = x after as many multiplications by a matrix as "turns", an int64, says."""
    nodes = [node("Identity", "on", "still"), node("MatMul", "at unit", "product")]
    nodes += [node("Identity", "product", "next")]
    turn, on, at = ("turn", T.INT64, []), ("on", T.BOOL, []), ("at", T.FLOAT, [64, 64])
    results = ("still", T.BOOL, []), ("next", T.FLOAT, [64, 64])
    ports = [
        [helper.make_tensor_value_info(*p) for p in side] for side in ((turn, on, at), results)
    ]
    body = helper.make_graph(nodes, "body", *ports)
    nodes = [helper.make_node("Loop", ["turns", "", "x"], ["advice"], body=body)]
    inputs = [("turns", T.INT64, []), ("x", T.FLOAT, [64, 64])]
    return save(
        path, nodes, inputs, [("advice", T.FLOAT, [64, 64])], {"unit": np.eye(64, dtype=np.float32)}
    )

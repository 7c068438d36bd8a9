"""A combination whose model is an ONNX file."""

import numpy as np
from file_stage import FileStage
from onnx import TensorProto, helper


class OnnxStage(FileStage):
    def made(self, inputs, outputs, **how):
        return onnx_model(inputs, outputs, **how).SerializeToString(deterministic=True)


def onnx_model(inputs, outputs, endless=False, raises=False):
    """As FileStage.made says."""
    nodes, constants, ports = [], [], []
    for name, value in outputs.items():
        if not isinstance(value, str):
            constants.append(constant(f"{name}_is", value))
            ports.append(port(name, value.dtype, value.shape))
        else:
            spec = next(spec for spec in inputs if spec.name == value)
            ports.append(port(name, spec.dtype, spec.shape))
        nodes.append(
            helper.make_node(
                "Identity", [value if isinstance(value, str) else f"{name}_is"], [name]
            )
        )
    if endless:
        constants += [
            constant("most", np.array(2**62)),
            constant("true", np.array(True)),
            constant("one", np.array(1)),
        ]
        nodes.append(helper.make_node("Loop", ["most", "true", "one"], ["advice"], body=add_one()))
        ports.append(port("advice", np.dtype(np.int64), ()))
    if raises:
        constants += [constant("hundred", np.array([100])), constant("values", np.array([1, 2]))]
        nodes.append(helper.make_node("Add", [inputs[0].name, "hundred"], ["index"]))
        nodes.append(helper.make_node("Gather", ["values", "index"], ["advice"]))
        ports.append(port("advice", np.dtype(np.int64), (1,)))
    graph = helper.make_graph(
        nodes,
        "conformance",
        [port(spec.name, spec.dtype, spec.shape) for spec in inputs],
        ports,
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def add_one():
    """A loop's body."""
    return helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["sum", "one"], ["more"]),
        ],
        "body",
        [
            port("turn", np.dtype(np.int64), ()),
            port("go", np.dtype(bool), ()),
            port("sum", np.dtype(np.int64), ()),
        ],
        [port("go_on", np.dtype(bool), ()), port("more", np.dtype(np.int64), ())],
    )


def port(name, dtype, shape):
    return helper.make_tensor_value_info(name, onnx_dtype(dtype), shape)


def constant(name, value):
    return helper.make_tensor(name, onnx_dtype(value.dtype), value.shape, value.tobytes(), raw=True)


def onnx_dtype(dtype):
    return (
        TensorProto.BFLOAT16
        if dtype.name == "bfloat16"
        else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    )

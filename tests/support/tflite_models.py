"""Small .tflite files, made with the schema that the wheel of ai-edge-litert brings along: no
converter, no TensorFlow."""

import copy

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema


def type_of(dtype):
    """The schema's number of a numpy dtype's name."""
    return getattr(schema.TensorType, dtype.upper())


class Graph:
    """A graph under construction; tensors are known by index. A dim of None is open. of: the graph
    whose operators call it."""

    def __init__(self, of=None):
        self.model, self.graph = of.model if of else schema.ModelT(), schema.SubGraphT()
        if not of:
            self.model.version, self.model.description = 3, b""
            self.model.buffers, self.model.operatorCodes, self.model.subgraphs = (
                [schema.BufferT()],
                [],
                [],
            )
        self.model.subgraphs.append(self.graph)
        self.graph.tensors, self.graph.operators = [], []

    def tensor(self, name, dtype, shape, value=None):
        t = schema.TensorT()
        t.name, t.type, t.buffer = name.encode(), type_of(dtype), 0
        t.shape = [1 if n is None else n for n in shape]
        if None in shape:
            t.shapeSignature = [-1 if n is None else n for n in shape]
        if value is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(value, dtype).tobytes(), np.uint8)
            t.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(t)
        return len(self.graph.tensors) - 1

    def constant(self, value):
        value = np.asarray(value)
        return self.tensor(
            f"constant{len(self.graph.tensors)}", value.dtype.name, value.shape, value
        )

    def operator(self, name, inputs, outputs, **options):
        code, made = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        made.opcodeIndex, made.inputs, made.outputs = len(self.model.operatorCodes), inputs, outputs
        kind = "".join(map(str.capitalize, name.split("_"))) + "Options"
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            made.builtinOptions = getattr(schema, kind + "T")()
            for key, value in options.items():
                setattr(made.builtinOptions, key, value)
        self.model.operatorCodes.append(code)
        self.graph.operators.append(made)

    def write(self, path, inputs, outputs, signature=True):
        path.write_bytes(self.file(inputs, outputs, signature))
        return path

    def ends(self, inputs, outputs):
        """inputs, outputs: tensors."""
        self.graph.inputs, self.graph.outputs = inputs, outputs

    def file(self, inputs, outputs, signature=True):
        """Its bytes. inputs, outputs: tensors by the names that the signature gives them."""
        self.ends(list(inputs.values()), list(outputs.values()))
        if signature:
            sign = schema.SignatureDefT()
            sign.signatureKey, sign.subgraphIndex = b"serving_default", 0
            sign.inputs, sign.outputs = _map(inputs), _map(outputs)
            self.model.signatureDefs = [sign]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _map(tensors):
    made = []
    for name, index in tensors.items():
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name.encode(), index
        made.append(entry)
    return made


def two_minus_x(path, n=None, signature=True):
    """y = 2 - x; best: the index of the greatest y. x: float32[1,n]."""
    g = Graph()
    x = g.tensor("serving_default_x:0", "float32", [1, n])
    y = g.tensor("StatefulPartitionedCall:0", "float32", [1, n])
    best = g.tensor("StatefulPartitionedCall:1", "int64", [1])
    g.operator("SUB", [g.constant(np.float32(2)), x], [y])
    g.operator("ARG_MAX", [y, g.constant(np.int32(1))], [best], outputType=type_of("int64"))
    return g.write(path, {"x": x}, {"y": y, "best": best}, signature)


def two_signatures(path):
    """y = x + 1 for the first, y = x - 1 for "minus". x: float32[1,n]."""
    g, signatures = Graph(), []
    for kind, key in ("ADD", b"plus"), ("SUB", b"minus"):
        if signatures:
            g.graph = copy.deepcopy(g.graph)
            g.graph.operators = []
            g.model.subgraphs.append(g.graph)
        else:
            x, one = g.tensor("x", "float32", [1, None]), g.constant(np.float32(1))
            y = g.tensor("y", "float32", [1, None])
        g.operator(kind, [x, one], [y])
        g.file({"x": x}, {"y": y})
        (sign,) = g.model.signatureDefs
        sign.signatureKey, sign.subgraphIndex = key, len(signatures)
        signatures.append(sign)
    g.model.signatureDefs = signatures
    builder = flatbuffers.Builder(1024)
    builder.Finish(g.model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def mlp(path, sizes=(300, 64, 2), seed=0):
    """score = W2·relu(W1·features + b1) + b2, float32."""
    g, random = Graph(), np.random.default_rng(seed)
    x = features = g.tensor("serving_default_features:0", "float32", [1, sizes[0]])
    for i, (n, m) in enumerate(zip(sizes, sizes[1:], strict=False)):
        w = g.constant(random.normal(0, n**-0.5, (m, n)).astype(np.float32))
        out = g.tensor(f"layer{i}", "float32", [1, m])
        g.operator(
            "FULLY_CONNECTED",
            [x, w, g.constant(np.zeros(m, np.float32))],
            [out],
            fusedActivationFunction=1 if m != sizes[-1] else 0,
        )
        x = out
    return g.write(path, {"features": features}, {"score": x})

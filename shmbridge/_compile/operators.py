"""Which ONNX operators compile, so that no value of an input leads the generated C outside its
arrays: it takes addresses from values without a check of its own."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.inliner

from shmbridge._compile.onnx_code import ELSE
from shmbridge._compile.wrap import c_string
from shmbridge.errors import UnsupportedError

# Their addresses come from loops over shapes alone.
BY_SHAPE = set(
    """Abs Acos Acosh Adagrad Adam Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention
    AveragePool BatchNormalization BiasGelu Binarizer BitCast BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast CastLike CausalConvWithState Ceil Celu Clip Concat ConcatFromSequence Constant
    Conv ConvInteger ConvTranspose Cos Cosh DeformConv DepthToSpace DequantizeLinear Det
    DynamicQuantizeLinear Einsum Elu Equal Erf Exp EyeLike FastGelu Flatten Floor FusedMatMul GRU
    Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample
    GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN
    LRN LSTM LabelEncoder LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log
    LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool Mean
    MeanVarianceNormalization Min Mish Momentum Mul Neg Not Or PRelu Pow QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu
    QLinearMatMul QLinearMul QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear
    RMSNormalization RNN Reciprocal Relu Round Selu SequenceConstruct Shape Shrink Sigmoid Sign
    Sin Sinh Size SkipLayerNormalization Softmax Softplus Softsign SpaceToDepth Sqrt Sub Sum
    SwiGLU Swish Tan Tanh ThresholdedRelu Transpose Trilu Where Xor""".split()  # noqa: SIM905
)
# Inputs that are sizes, places or axes, and so part of the generated code.
SIZES: dict[str, Sequence[int]] = {
    "Col2Im": [1, 2],
    "DFT": [1, 2],
    "Dropout": [2],
    "MelWeightMatrix": range(5),
    "Pad": [1, 3],
    "Range": range(3),
    "Resize": [1, 2, 3],
    "STFT": [1, 3],
    "Slice": range(1, 5),
}
SIZES |= dict.fromkeys(["BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow"], [0])
SECOND = """AffineGrid CenterCropPad Expand OneHot Reshape SequenceAt Split Squeeze Tile TopK
    Unsqueeze Upsample"""
SIZES |= dict.fromkeys(SECOND.split(), [1])
SEQUENCE = 32  # elements of a sequence that the generated code has room for
# Of others than ONNX itself; a private operator may have any name.
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft")
GRAPH, GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS
INTEGER = re.compile(r"u?int(\d+)_t")
Dims = Mapping[str, list[int | str]]  # of tensors; the name of an open size
COMMENT = r"/\*\n \* Node \d+:\n \* OpType: (\w+)\n.*?^ \* Outputs: (.*?)\n.*?^ \*/\n"
PARAMETER = r"(\w+) (\w+)((?:\[[^]]*\])+)"
FUNCTION = r"^(?:EMX_NODE_FN )?void \w+\(([^\n]*)\) \{\n"


def plain(model: Any) -> Any:
    """The model without functions and what becomes a comment of the generated C. Errors:
    UnsupportedError."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    graph = model.graph
    kept = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    kept.ir_version, kept.graph.name, kept.graph.doc_string = model.ir_version, "", ""
    del kept.graph.metadata_props[:]
    names = [tensor.name for tensor in graph.initializer]
    for port in [*graph.input, *graph.output]:
        names += [port.name, *(dim.dim_param for dim in port.type.tensor_type.shape.dim)]
    for node in kept.graph.node:
        node.name = node.doc_string = ""
        names += [*node.input, *node.output]
        texts = [text for each in node.attribute for text in (each.s, *each.strings)]
        names += [text.decode(errors="replace") for text in texts]
    for name in names:
        if re.search(r"\*/|[\x00-\x1f]", name):
            raise UnsupportedError(f"the name {name!r} cannot be in a comment of C: {ELSE}")
    try:
        onnx.shape_inference.infer_shapes(kept, strict_mode=True, data_prop=True)
    except Exception as error:  # of C++
        raise UnsupportedError(f"the model's shapes contradict each other: {error}") from error
    return kept


def review(model: Any) -> None:
    """Errors: UnsupportedError if a value may lead the generated code outside its arrays."""
    for node in model.graph.node:
        if node.op_type.startswith("TreeEnsemble"):
            raise UnsupportedError("tree ensembles do not compile: use onnx://, which runs them")
        if any(attribute.type in (GRAPH, GRAPHS) for attribute in node.attribute):
            raise UnsupportedError(f"control flow ({node.op_type}) does not compile: {ELSE}")
    known = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        op, reduces = node.op_type, node.op_type.startswith("Reduce")
        sizes: Sequence[int] = [1] if reduces else SIZES.get(op, ())
        known_op = reduces or op in BY_SHAPE or op in SIZES or op in CHECKS
        if node.domain not in DOMAINS or not known_op:
            raise UnsupportedError(f"the operator {op} does not compile: {ELSE}")
        if op == "SequenceConstruct" and len(node.input) > SEQUENCE:
            raise UnsupportedError(f"a sequence of more than {SEQUENCE} does not compile: {ELSE}")
        for i, name in enumerate(node.input):
            if i in sizes and name and name not in known:
                raise UnsupportedError(
                    f'{op}: "{name}" is a size or place that depends on the inputs\' values, which '
                    f"are unknown here: {ELSE}"
                )
        if op in ("Shape", "Size") or all(name in known for name in node.input if name):
            known.update(node.output)


def review_open(shapes: Dims) -> None:
    """Errors: UnsupportedError for open dimensions that may differ: the generated code takes them
    as equal where they meet."""
    names = {size for dims in shapes.values() for size in dims if not isinstance(size, int)}
    if len(names) > 1:
        raise UnsupportedError(
            f"expected one open dimension at most, found {', '.join(map(str, names))}: give them "
            "sizes (--dim NAME=SIZE), or use onnx://"
        )


def with_checks(text: str, nodes: Iterable[Any], shapes: Dims) -> str:
    """The generated C, with checks at the beginning of each function that needs them. shapes: of
    each tensor, as the generator inferred them. Errors: UnsupportedError."""
    by_outputs = {", ".join(filter(None, node.output)): node for node in nodes}

    def checked(found: re.Match[str]) -> str:
        op, outputs, parameters = found.groups()
        if op not in CHECKS:
            return found[0]
        node, arrays = by_outputs.get(outputs), re.findall(PARAMETER, parameters)
        given = [i for i, name in enumerate(node.input) if name] if node else []
        if not node or len(arrays) != len(given) + len([*filter(None, node.output)]):
            raise UnsupportedError(f"the operator {op} does not compile in this form: {ELSE}")
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        dims = [shapes[node.input[i]] for i in given]
        inputs = [
            _Array(c, name, extents, its)
            for (c, name, extents), its in zip(arrays, dims, strict=False)
        ]
        return found[0] + CHECKS[op](_Node(op, attributes, dict(zip(given, inputs, strict=True))))

    return re.sub(COMMENT + r".*?" + FUNCTION, checked, text, flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class _Array:
    c_type: str
    name: str
    extents: str  # in C, "[2][rows]"
    dims: list[int | str]  # of the tensor

    @property
    def count(self) -> str:
        """A C expression of its elements. Errors: UnsupportedError."""
        sizes = ["(int64_t)1"]
        for size, extent in zip(self.dims, re.findall(r"\[([^]]*)\]", self.extents), strict=False):
            if not isinstance(size, int) and extent.isdigit():
                raise UnsupportedError(_open(size))
            sizes.append(f"({size if isinstance(size, int) else extent})")
        return " * ".join(sizes)


def _open(size: Any) -> str:
    return (
        f'the dimension "{size}" is open where indices are used: give it a size (--dim NAME=SIZE)'
    )


@dataclass(frozen=True)
class _Node:
    """A node with the parameters of its function, by the places of the inputs."""

    op: str
    attributes: dict[str, Any]
    inputs: dict[int, _Array]

    def within(self, i: int, low: str, high: str) -> str:
        """C that ends the run unless each element of an input, if given, is from low to high."""
        if not (array := self.inputs.get(i)):
            return ""
        return (
            f"    for (int64_t shmb_k = 0; shmb_k < {array.count}; shmb_k++) {{\n"
            f"        const int64_t shmb_i = ((const {array.c_type} *){array.name})[shmb_k];\n"
            f"        const int64_t shmb_low = {low}, shmb_high = {high};\n"
            f"        if (shmb_i < shmb_low || shmb_i > shmb_high) {{\n"
            f"            outside({c_string(self.op)}, shmb_i, shmb_low, shmb_high);\n"
            "            return;\n        }\n    }\n"
        )

    def extent(self, i: int, axis: int) -> str:
        """Of an input, along an axis. Errors: UnsupportedError."""
        if not isinstance(size := self.inputs[i].dims[axis], int):
            raise UnsupportedError(f"{self.op}: {_open(size)}")
        return f"(int64_t){size}"


def _along_axis(node: _Node) -> str:
    extent = node.extent(0, node.attributes.get("axis", 0))
    return node.within(1, f"-{extent}", f"{extent} - 1")


def _by_tuples(node: _Node) -> str:
    """The last dimension of the indices has one for each of the data's from batch_dims on."""
    first, depth = node.attributes.get("batch_dims", 0), int(node.inputs[1].dims[-1])
    limits = ", ".join(node.extent(0, axis) for axis in range(first, first + depth))
    limit = f"((const int64_t[]){{{limits}}})[shmb_k % {depth}]"
    return node.within(1, f"-{limit}", f"{limit} - 1")


def _axis(node: _Node) -> str:
    rank = len(node.inputs[0].dims)
    return node.within(1, f"-{rank}", f"{rank} - 1")


def _divisor(node: _Node) -> str:
    """Not 0, and not -1 where the quotient of the least number would not fit: the processor
    traps."""
    a, b = node.inputs[0], node.inputs[1]
    if not (integer := INTEGER.fullmatch(b.c_type)):
        return ""
    signed, least = not b.c_type.startswith("u") and int(integer[1]) >= 32, f"INT{integer[1]}_MIN"
    any_least = f"((const {a.c_type} *){a.name})[shmb_k] == {least}" if signed else "false"
    return (
        f"    bool shmb_least = false;\n"
        f"    for (int64_t shmb_k = 0; shmb_k < {a.count}; shmb_k++)\n"
        f"        shmb_least |= {any_least};\n"
        f"    for (int64_t shmb_k = 0; shmb_k < {b.count}; shmb_k++) {{\n"
        f"        const {b.c_type} shmb_i = ((const {b.c_type} *){b.name})[shmb_k];\n"
        f"        if (!shmb_i || (shmb_least && shmb_i == ({b.c_type})-1)) {{\n"
        f"            failed = {c_string(node.op + ': division by zero, or overflow')};\n"
        "            return;\n        }\n    }\n"
    )


def _shift(node: _Node) -> str:
    bits = INTEGER.fullmatch(node.inputs[1].c_type)
    return node.within(1, "0", f"{int(bits[1]) - 1}") if bits else ""


# C for the beginning of an operator's function, which takes its values as they are.
CHECKS: dict[str, Callable[[_Node], str]] = {
    "ArrayFeatureExtractor": lambda node: node.within(1, "0", f"{node.extent(0, -1)} - 1"),
    "BitShift": _shift,
    "CumProd": _axis,
    "CumSum": _axis,
    "Div": _divisor,
    "Gather": _along_axis,
    "GatherElements": _along_axis,
    "GatherND": _by_tuples,
    "Mod": _divisor,
    "ReverseSequence": lambda node: node.within(
        1, "0", node.extent(0, node.attributes.get("time_axis", 0))
    ),
    "RotaryEmbedding": lambda node: node.within(3, "0", f"{node.extent(1, 0)} - 1"),
    "Scatter": _along_axis,
    "ScatterElements": _along_axis,
    "ScatterND": _by_tuples,
}

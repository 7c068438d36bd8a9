"""The demo's toy model: should a compiler inline this function? Its weights were set by hand.

`shmbridge serve NAME --python shmbridge.demo.model:advise` answers examples/c/ask.c with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge._values.tensor import Array

# What ask.c counts in a function's text, and how much each weighs in the four hidden units.
PATTERNS = {
    #               size   branches loops  calls
    "\n":          (0.50,  0.00,    0.00,  0.00),
    ";":           (0.50,  0.00,    0.00,  0.00),
    "if (":        (0.00,  1.00,    0.00,  0.00),
    "for (":       (0.00,  0.20,    1.50,  0.00),
    "while (":     (0.00,  0.20,    1.50,  0.00),
    "switch (":    (0.00,  1.00,    0.00,  0.00),
    "case ":       (0.00,  0.50,    0.00,  0.00),
    "return":      (0.00,  0.30,    0.00,  0.00),
    "(":           (0.00,  0.00,    0.00,  1.00),
    "[":           (0.20,  0.00,    0.00,  0.00),
    "->":          (0.10,  0.00,    0.00,  0.00),
    "*":           (0.10,  0.00,    0.00,  0.00),
    "=":           (0.20,  0.00,    0.00,  0.00),
    "+":           (0.10,  0.00,    0.00,  0.00),
    '"':           (0.00,  0.00,    0.00,  0.30),
    "{":           (0.00,  0.20,    0.00,  0.00),
}  # fmt: skip
HIDDEN = np.array(list(PATTERNS.values()), np.float32)  # [16, 4]
HIDDEN_BIAS = np.array([-1.0, -0.5, 0.0, -1.0], np.float32)
OUTPUT = np.array([-1.0, -0.5, -1.0, -0.5], np.float32)  # everything speaks against inlining
OUTPUT_BIAS = np.float32(2.2)


def inline(counts: Array) -> Array:
    """counts: float32[..., 16], how often each pattern occurs in a function. Returns int64[...]: 1
    inline, 0 call."""
    hidden = np.maximum(np.log1p(counts) @ HIDDEN + HIDDEN_BIAS, 0)
    return np.asarray(hidden @ OUTPUT + OUTPUT_BIAS > 0).astype(np.int64)


def advise(request: Mapping[str, Any]) -> Array:
    """For `shmbridge serve --python`, with or without batches."""
    return inline(request["features"])


def nothing(request: Mapping[str, Any]) -> int:
    """An empty model, to measure only the transport."""
    request["features"]
    return 0


# ---- The same as an ONNX file: Protobuf by hand, so that the demo needs ONNX Runtime alone ----

_FLOAT, _INT64 = 1, 7


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def _tensor(name: str, values: Array) -> bytes:
    dims = b"".join(_field(1, size) for size in values.shape)
    return dims + _field(2, _FLOAT) + _field(8, name) + _field(9, values.astype("<f4").tobytes())


def _node(op: str, inputs: str, output: str, attribute: bytes = b"") -> bytes:
    return (
        b"".join(_field(1, name) for name in inputs.split())
        + _field(2, output)
        + _field(4, op)
        + attribute
    )


def _value(name: str, dtype: int, *sizes: int) -> bytes:
    dims = _field(1, _field(2, "batch")) + b"".join(_field(1, _field(1, size)) for size in sizes)
    return _field(1, name) + _field(2, _field(1, _field(1, dtype) + _field(2, dims)))


def onnx_bytes() -> bytes:
    """The model as an ONNX file: features float32[batch, 16] to advice int64[batch]."""
    to_int64 = _field(5, _field(1, "to") + _field(3, _INT64) + _field(20, 2))
    nodes = [
        _node("Add", "features one", "more"),
        _node("Log", "more", "logs"),
        _node("MatMul", "logs hidden", "sums"),
        _node("Add", "sums hidden_bias", "biased"),
        _node("Relu", "biased", "active"),
        _node("MatMul", "active output", "score"),
        _node("Add", "score output_bias", "margin"),
        _node("Greater", "margin zero", "chosen"),
        _node("Cast", "chosen", "advice", to_int64),
    ]
    constants: dict[str, Array] = {
        "one": np.ones(()), "hidden": HIDDEN, "hidden_bias": HIDDEN_BIAS,
        "output": OUTPUT, "output_bias": np.asarray(OUTPUT_BIAS), "zero": np.zeros(()),
    }  # fmt: skip
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, "toy_inliner")
    graph += b"".join(_field(5, _tensor(name, values)) for name, values in constants.items())
    graph += _field(11, _value("features", _FLOAT, len(PATTERNS))) + _field(
        12, _value("advice", _INT64)
    )
    # IR version 8, operators of version 13.
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 13))

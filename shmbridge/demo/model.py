"""The demo's toy model: should a compiler inline this function? Its weights were set by hand.

`shmbridge serve NAME --python shmbridge.demo.model:advise` answers examples/c/ask.c with it.
examples/c/model.onnx is the same model: features float32[batch, 16] to advice int64[batch].
"""

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

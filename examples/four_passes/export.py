"""Writes loop.py's policy as an ONNX file, whose inputs are the compiler's features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from environment import shared
from loop import Policy


def export(policy: Policy, path: Path) -> None:
    """Inputs: "counters", float32[n], and "used", float32[actions]. Output: "logits",
    float32[actions]."""
    first, second = policy.weights
    constants = {"one": np.ones(1, np.float32), "fifth": np.float32(0.2)}
    constants |= {"first": first, "second": second}
    nodes = [
        ("Add", "counters one", "more"),
        ("Log", "more", "log"),
        ("Mul", "log fifth", "scaled"),
        ("Concat", "scaled used one", "x", {"axis": 0}),
        ("MatMul", "x first", "sums"),
        ("Tanh", "sums", "hidden"),
        ("MatMul", "hidden second", "logits"),
    ]
    actions = second.shape[1]
    inputs = {"counters": ("float32", [len(first) - actions - 1]), "used": ("float32", [actions])}
    shared.save_onnx(path, nodes, inputs, {"logits": ("float32", [actions])}, constants)

"""A small inlining policy: LLVM's features, 16 hidden units, and a last layer that evolution
changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN = 16
# Features of the whole module are left out: the policy should judge the call site.
MODULE = {
    "node_count",
    "edge_count",
}
Array = NDArray[Any]


@dataclass
class Policy:
    """Inlines if basis(features) @ last > 0.

    Attributes:
        names: The features that it uses, int64[1] each.
        mean: Of the logarithms of the features, float64[len(names)].
        inverse: One over their standard deviations, float64[len(names)]. 0 for a constant feature.
        first: float64[len(names) + 1, HIDDEN]: from the scaled features, and a one, to the hidden
            units.
        last: float64[HIDDEN + len(names) + 1]: from the hidden units, the scaled features, and a
            one, to the decision.
    """

    names: list[str]
    mean: Array
    inverse: Array
    first: Array
    last: Array

    def basis(self, features: Mapping[str, Array]) -> Array:
        """The inputs of the last layer: float64[rows, HIDDEN + len(names) + 1]."""
        x = (_logarithms(self.names, features) - self.mean) * self.inverse
        x = np.append(x, np.ones((len(x), 1)), axis=1)
        return np.concatenate([np.tanh(x @ self.first), x], axis=1)

    def decide(self, features: Mapping[str, Array], last: Array | None = None) -> Array:
        """1: inline, 0: leave; int64[rows]. last: other weights, the same for all rows or a row for
        each."""
        return ((self.basis(features) * (self.last if last is None else last)).sum(1) > 0) * 1


def _logarithms(names: list[str], features: Mapping[str, Array]) -> Array:
    x = np.concatenate([features[name] for name in names], axis=1).astype(np.float64)
    return np.sign(x) * np.log1p(np.abs(x))


def imitate(features: Mapping[str, Array], decisions: Array, seed: int, steps: int = 600) -> Policy:
    """A policy that imitates decisions: logistic regression through one hidden layer, with Adam.

    Args:
        features: By name, int64[rows, 1].
        decisions: 0 or 1, [rows].
        seed: Seed for the initial weights.
        steps: Steps of gradient descent, each on all rows.
    """
    names, random = sorted(features.keys() - MODULE), np.random.default_rng(seed)
    x = _logarithms(names, features)
    inverse = np.divide(1, x.std(0), out=np.zeros(len(names)), where=x.std(0) > 0)
    first = random.standard_normal((len(names) + 1, HIDDEN)) / np.sqrt(len(names))
    policy = Policy(names, x.mean(0), inverse, first, np.zeros(HIDDEN + len(names) + 1))
    weights = [policy.first, policy.last]
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
    for step in range(1, steps + 1):
        basis = policy.basis(features)
        hidden, z = basis[:, :HIDDEN], basis[:, HIDDEN:]
        wrong = (1 / (1 + np.exp(-np.clip(basis @ policy.last, -30, 30))) - decisions) / len(x)
        back = wrong[:, None] * policy.last[:HIDDEN] * (1 - hidden**2)
        gradients = [z.T @ back, wrong @ basis]
        for w, gradient, (m, v) in zip(weights, gradients, moments, strict=True):
            m += 0.1 * (gradient - m)
            v += 0.01 * (gradient**2 - v)
            w -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
    return policy


def save(policy: Policy, path: Path) -> None:
    """The policy as an ONNX model: an input for each feature, int64[1]; the output
    inlining_decision, int64[1]."""
    from onnx import TensorProto, helper
    from onnx import save as write

    def constant(name: str, value: Array) -> TensorProto:
        return helper.make_tensor(name, TensorProto.DOUBLE, value.shape, value.reshape(-1))

    constants = [
        constant("one", np.ones(1)),
        constant("mean", policy.mean),
        constant("inverse", policy.inverse),
        constant("first", policy.first),
        constant("last", policy.last[:, None]),
        constant("zero", np.zeros(1)),
    ]
    nodes = [
        helper.make_node("Concat", policy.names, ["features"], axis=0),
        helper.make_node("Cast", ["features"], ["x"], to=TensorProto.DOUBLE),
        helper.make_node("Sign", ["x"], ["sign"]),
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Add", ["size", "one"], ["more"]),
        helper.make_node("Log", ["more"], ["log"]),
        helper.make_node("Mul", ["sign", "log"], ["signed"]),
        helper.make_node("Sub", ["signed", "mean"], ["centred"]),
        helper.make_node("Mul", ["centred", "inverse"], ["scaled"]),
        helper.make_node("Concat", ["scaled", "one"], ["inputs"], axis=0),
        helper.make_node("MatMul", ["inputs", "first"], ["before"]),
        helper.make_node("Tanh", ["before"], ["hidden"]),
        helper.make_node("Concat", ["hidden", "inputs"], ["basis"], axis=0),
        helper.make_node("MatMul", ["basis", "last"], ["score"]),
        helper.make_node("Greater", ["score", "zero"], ["inline"]),
        helper.make_node("Cast", ["inline"], ["inlining_decision"], to=TensorProto.INT64),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, [1]) for n in policy.names]
    outputs = [helper.make_tensor_value_info("inlining_decision", TensorProto.INT64, [1])]
    graph = helper.make_graph(nodes, "inliner", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 17)]
    write(helper.make_model(graph, opset_imports=opset, ir_version=8), path)

"""A linear inlining policy over the logarithms of LLVM's features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from programs import shared

# Features of the whole module, and flags of ThinLTO, are left out: the policy judges the call.
LEFT_OUT = {
    "node_count",
    "edge_count",
    "is_callee_avail_external",
    "is_caller_avail_external",
    "inlining_default",
}
THRESHOLD = 4.5  # LLVM's -Oz inlines what costs less than 5; costs are integers
Array = NDArray[Any]


@dataclass(frozen=True)
class Policy:
    """Inlines a call if inputs(features) @ weights > 0.

    Attributes:
        names: The features that it uses, int64[1] each.
        mean: Of the features' logarithms, float64[len(names)].
        inverse: One over their standard deviations, float64[len(names)]. 0 for a constant feature.
        weights: float64[len(names) + 1]: of a one, and of the scaled logarithms.
    """

    names: list[str]
    mean: Array
    inverse: Array
    weights: Array

    def inputs(self, features: Mapping[str, Array]) -> Array:
        """float64[rows, len(names) + 1]: a one, and the scaled logarithms."""
        scaled = (_logarithms(self.names, features) - self.mean) * self.inverse
        return np.insert(scaled, 0, 1, axis=1)

    def decide(self, features: Mapping[str, Array], weights: Array | None = None) -> Array:
        """1: inline, 0: leave; int64[rows]. weights: others, for all rows or for each."""
        weights = self.weights if weights is None else weights
        return ((self.inputs(features) * weights).sum(1) > 0) * 1


def llvm_rule(features: Mapping[str, Array]) -> Policy:
    """LLVM's own rule at -Oz, as a policy whose inputs are scaled to these features."""
    names = sorted(
        name
        for name, values in features.items()
        if values.dtype == np.int64 and name not in LEFT_OUT
    )
    x = _logarithms(names, features)
    inverse = np.divide(1, x.std(0), out=np.zeros(len(names)), where=x.std(0) > 0)
    cost = names.index("cost_estimate")
    weights = np.zeros(len(names) + 1)
    weights[0] = np.log1p(THRESHOLD) - x.mean(0)[cost]
    weights[1 + cost] = -x[:, cost].std()
    return Policy(names, x.mean(0), inverse, weights)


def _logarithms(names: Sequence[str], features: Mapping[str, Array]) -> Array:
    x = np.concatenate([features[name] for name in names], axis=1).astype(np.float64)
    return np.sign(x) * np.log1p(np.abs(x))


def imitate(inputs: Array, decisions: Array, importance: Array, steps: int = 400) -> Array:
    """The weights that imitate decisions: logistic regression, with Adam.

    Args:
        inputs: As Policy.inputs returns them, float64[rows, inputs].
        decisions: 0 or 1, [rows].
        importance: Of each row, float64[rows].
        steps: Steps of gradient descent, each on all rows.
    """
    weights = np.zeros(inputs.shape[1])
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    importance = importance / importance.sum()
    for step in range(1, steps + 1):
        wrong = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30))) - decisions
        gradient = (importance * wrong) @ inputs
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient**2 - square)
        weights -= 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return weights


def save(policy: Policy, path: Path) -> None:
    """The policy as an ONNX model: an input for each feature, int64[1]; the output
    inlining_decision, int64[1]."""
    constants = {"one": np.ones(1), "mean": policy.mean, "inverse": policy.inverse}
    constants |= {"weights": policy.weights[1:, None], "least": -policy.weights[:1]}
    nodes = [
        ("Concat", " ".join(policy.names), "features", {"axis": 0}),
        ("Cast", "features", "x", {"to": shared.DOUBLE}),
        ("Sign", "x", "sign"),
        ("Abs", "x", "size"),
        ("Add", "size one", "more"),
        ("Log", "more", "log"),
        ("Mul", "sign log", "signed"),
        ("Sub", "signed mean", "centred"),
        ("Mul", "centred inverse", "scaled"),
        ("MatMul", "scaled weights", "score"),
        ("Greater", "score least", "inline"),
        ("Cast", "inline", "inlining_decision", {"to": shared.INT64}),
    ]
    inputs = {name: ("int64", [1]) for name in policy.names}
    shared.save_onnx(path, nodes, inputs, {"inlining_decision": ("int64", [1])}, constants)

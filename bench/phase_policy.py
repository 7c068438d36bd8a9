"""A policy with the size and shape of phase ordering's, to measure the cost of asking:
python phase_policy.py policy.onnx

A perceptron of three layers over the plug-in's counters, with fixed random weights, untrained.
`advise` is the same in numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

# Parts of -Oz's own pipeline, each used once.
ACTIONS = """\
function(sroa,early-cse)
ipsccp
globalopt
function(instcombine<no-verify-fixpoint>,simplifycfg)
cgscc(inline)
function(jump-threading,correlated-propagation)
function(tailcallelim,reassociate)
function(loop-mssa(loop-rotate,licm))
function(loop(indvars,loop-deletion))
function(gvn,sccp)
function(memcpyopt,dse)
function(adce,bdce)
function(loop-unroll<O2>)
function(vector-combine,instsimplify)
globaldce,constmerge
"""
COUNT = len(ACTIONS.splitlines())
COUNTERS = 99
SIZES = (COUNTERS, 128, 64, COUNT)
_random = np.random.default_rng(0)
LAYERS = [
    (_random.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
    for n, m in zip(SIZES, SIZES[1:], strict=False)
]


def advise(request: Mapping[str, Any]) -> Any:
    """Scores, float32[COUNT]; an action that was used scores below all others."""
    x = np.log(np.asarray(request["counters"]) + 1)
    for weights, bias in LAYERS[:-1]:
        x = np.maximum(x @ weights + bias, 0)
    weights, bias = LAYERS[-1]
    return x @ weights + bias - 1e6 * np.asarray(request["used"])


def write(path: str) -> None:
    """The same as an ONNX model: counters float32[99], used float32[COUNT]; scores float32[1,
    COUNT]."""
    from program import onnx_models

    models = onnx_models()
    node = models.node
    values = {"one": np.float32([1]), "many": np.float32([1e6]), "row": np.int64([0])}
    nodes = [
        node("Add", "counters one", "more"),
        node("Log", "more", "log"),
        node("Unsqueeze", "log row", "r0"),
        node("Mul", "used many", "taken"),
    ]
    for i, (weights, bias) in enumerate(LAYERS):
        values |= {f"w{i}": weights, f"b{i}": bias}
        nodes.append(node("Gemm", f"r{i} w{i} b{i}", f"g{i}"))
        if i < len(LAYERS) - 1:
            nodes.append(node("Relu", f"g{i}", f"r{i + 1}"))
    nodes.append(node("Sub", f"g{len(LAYERS) - 1} taken", "scores"))
    inputs = [(name, models.T.FLOAT, [n]) for name, n in (("counters", COUNTERS), ("used", COUNT))]
    models.save(path, nodes, inputs, [("scores", models.T.FLOAT, [1, COUNT])], values)


if __name__ == "__main__":
    write(sys.argv[1])

"""A small inlining policy for size: LLVM's estimate of the cost, with corrections.

Serve it, from this folder, with `shmbridge serve inliner --python policy:advise`; export.py makes
an ONNX model of it.
"""

from collections.abc import Mapping
from typing import Any

# Instructions are counted in LLVM's unit of 5. The weights were found by hand on one program, zstd.
WEIGHTS = {
    "cost_estimate": 1.0,  # of the callee's body at this site, less the call itself
    "callee_basic_block_count": 2.0,  # each block brings jumps that the estimate does not see
    "caller_conditionally_executed_blocks": -0.05,  # a branchy caller shares its spills with the callee
    "nr_ctant_params": -5.0,  # constants fold more than the estimate knows
    "sroa_savings": -0.2,  # so does memory that becomes registers
}
BIAS = 10.0


def score(request: Mapping[str, Any]) -> float:
    """The cost of inlining, in LLVM's unit. request: LLVM's 38 features, each int64[1]."""
    cost = 0.0
    for name, weight in WEIGHTS.items():  # not sum(), which rounds otherwise since Python 3.12
        cost += weight * request[name].item()
    return cost + BIAS


def advise(request: Mapping[str, Any]) -> int:
    """1: inline this call, 0: leave it."""
    return int(score(request) < 0)

"""Unroll counts for the innermost loops of a function, one by one or as a batch."""

import numpy as np

TRIPS, DEPTH, BLOCKS, INSTRUCTIONS, MEMORY, CALLS = range(6)
MOST = 64  # instructions of the unrolled loop


def advise(request):
    """1: leave the loop to LLVM, else how often to unroll it."""
    loop = request["loop"]
    if loop[BLOCKS] > 1 or loop[CALLS]:
        return 1
    return int(2 ** np.clip(np.log2(MOST / loop[INSTRUCTIONS]), 0, 3).astype(int))

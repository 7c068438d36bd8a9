"""The compiler's side in Python: float32[BYTES / 4] in, one scalar out.

python_runner.py NAME WAIT CORE      NAME: a bridge's, or a URL
"""

import functools
import os
import sys
from typing import Any

import numpy as np

import shmbridge
from bench.transport.blocks import serve_blocks

name, wait, core = sys.argv[1:]


@functools.cache
def features(size: int) -> np.ndarray[Any, Any]:
    """float32[size / 4]. evaluate copies it into shared memory: every byte is written, as by the C
    runner."""
    return np.full(size // 4, np.frombuffer(b"\x3e\x3e\x3e\x3e", np.float32))  # as the C runner's


with shmbridge.connect(name, wait=wait) as runner:
    # Only now: a runner that may use one CPU only does not spin.
    os.sched_setaffinity(0, {int(core)})
    serve_blocks(lambda size: runner.evaluate({"features": features(size)}))

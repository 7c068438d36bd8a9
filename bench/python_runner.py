"""The compiler's side in Python: float32[BYTES / 4] in, one scalar out.

python_runner.py NAME WAIT CORE
"""

from __future__ import annotations

import os
import sys

import numpy as np
from blocks import serve_blocks

import shmbridge

name, wait, core = sys.argv[1:]
# evaluate copies the array into shared memory: every byte is written, as by the C runner
features = {size: np.ones(size // 4, np.float32) for size in (4, 2_000, 100_000, 10_000_000)}

with shmbridge.connect(name, wait=wait) as runner:
    os.sched_setaffinity(0, {int(core)})  # only now: a runner that may use one CPU only does not spin
    serve_blocks(lambda size: runner.evaluate({"features": features[size]}))

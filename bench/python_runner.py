"""The compiler's side in Python: the blocks of block.h, in Python.

python_runner.py NAME WAIT CORE
"""

from __future__ import annotations

import os
import statistics
import sys
from time import perf_counter_ns

import numpy as np

import shmbridge

MAX_SAMPLES = 4096
name, wait, core = sys.argv[1:]


def block(runner: shmbridge.Runner, size: int, length: int) -> tuple[float, list[int]]:
    features = np.ones(size // 4, np.float32)  # evaluate copies it into shared memory, as the C runner's memset writes it
    batch = 32 if size < 10_000 else 4 if size < 1_000_000 else 1
    batches: list[float] = []
    singles: list[int] = []
    start = now = perf_counter_ns()
    while now - start < length / 5:
        runner.evaluate({"features": features})
        now = perf_counter_ns()
    while now - start < length and len(singles) < MAX_SAMPLES:
        t0 = perf_counter_ns()
        for _ in range(batch):
            runner.evaluate({"features": features})
        t1 = perf_counter_ns()
        runner.evaluate({"features": features})
        now = perf_counter_ns()
        batches.append((t1 - t0) / batch)
        singles.append(now - t1)
    return statistics.median(batches), singles


with shmbridge.connect(name, wait=wait) as runner:
    os.sched_setaffinity(0, {int(core)})
    print("ready", flush=True)
    for line in sys.stdin:
        size, length = map(int, line.split())
        median, singles = block(runner, size, length)
        print(f"{median:.1f}", *singles, flush=True)

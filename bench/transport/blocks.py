"""The near side's blocks in Python; see block.h."""

import statistics
import sys
from collections.abc import Callable
from time import perf_counter_ns

MAX_SAMPLES = 4096


def serve_blocks(trip: Callable[[int], object]) -> None:
    """Runs a block for every "BYTES NANOSECONDS" on standard input; trip(bytes) makes one round
    trip."""
    print("ready", flush=True)
    for line in sys.stdin:
        size, length = map(int, line.split())
        batch = 32 if size < 10_000 else 4 if size < 1_000_000 else 1
        batches: list[float] = []
        singles: list[int] = []
        start = now = perf_counter_ns()
        while now - start < length / 5:  # the far side wakes up, caches fill
            trip(size)
            now = perf_counter_ns()
        while not singles or (now - start < length and len(singles) < MAX_SAMPLES):
            t0 = perf_counter_ns()
            for _ in range(batch):
                trip(size)
            t1 = perf_counter_ns()
            trip(size)
            now = perf_counter_ns()
            batches.append((t1 - t0) / batch)
            singles.append(now - t1)
        print(f"{statistics.median(batches):.1f}", *singles, flush=True)

"""The cost of a Python policy for whole compilations, and of serving many candidates.

    python bench/trajectories.py [--rounds N] [--workers N] [--candidates N] [--json FILE]

The compiler is clang-22 -Oz, the programs are the 12 C files of zopfli.

- Compilations a minute, alternating: only clang, as many at once; the same as a `Task` without
  questions; `collect`, where a linear policy of numpy answers every inlining decision.
- Evolution: resident memory and start-up of one process that serves N candidates of 100,000 float32
  each, compared with N processes with one candidate each.

Needs shmbridge installed and clang-22.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from program import options, write
from sources import fetch_zopfli

from shmbridge.training import Corpus, Module, Task, collect
from shmbridge.training.scores import text_size

SIZE = 100_000  # weights of a candidate
FLAGS = ["-Oz", "-c"]

SERVER = """
import sys, numpy as np
from shmbridge import Host
candidates = int(sys.argv[2])
weights = np.random.default_rng(0).standard_normal((candidates, {size}), np.float32)

def policy(batch):
    rows = [int(label) for label in batch.labels]
    return (np.einsum("bf,bf->b", batch["x"], weights[rows]) > 0).astype(np.int64)

with Host(sys.argv[1], channels=int(sys.argv[3])) as host, host.start(policy, max_batch=64):
    print("ready", flush=True)
    sys.stdin.read()
"""


def plain(module: Module, folder: Path) -> None:
    out = folder / f"{module.name}.o"
    subprocess.run(["clang-22", *FLAGS, str(module.path), "-o", out], check=True)


def linear(weights: Any) -> Callable[[Any], Any]:
    def policy(batch: Any) -> Any:
        columns = [values for values in batch.values() if isinstance(values, np.ndarray)]
        return (np.concatenate(columns, axis=1) @ weights[: len(columns)] > 0).astype(np.int64)

    return policy


def compilations(corpus: Corpus, workers: int, rounds: int, folder: Path) -> dict[str, float]:
    """Compilations a minute of each way: the median of the rounds; and questions of a
    compilation."""
    task = Task(f"clang-22 {' '.join(FLAGS)} {{module}} -o {{output}}", scores={"size": text_size})
    asks = Task(task.words, llvm="inline", scores=task.scores)
    policy, asked = linear(np.random.default_rng(0).standard_normal(100)), 0
    for module in corpus:
        asks.baseline(module)
    ways: dict[str, Callable[[Any], object]] = {
        "clang": lambda pool: list(pool.map(lambda module: plain(module, folder), corpus)),
        "task": lambda pool: list(pool.map(task.run, corpus)),
        "collect": lambda pool: sum(map(len, collect(policy, asks, corpus, num_workers=workers))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with ThreadPoolExecutor(workers) as pool:
        for turn in range(rounds + 1):  # the first warms up
            for name, way in ways.items():
                start = time.perf_counter()
                done = way(pool)
                if turn:
                    seconds[name].append(time.perf_counter() - start)
                asked = done if isinstance(done, int) else asked
    found = {name: 60 * len(corpus) / median(each) for name, each in seconds.items()}
    return {**found, "questions": asked / len(corpus)}


def resident(pid: int) -> float:
    """Proportional set size, MB: shared pages count once in total."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss: +(\d+)", text, re.MULTILINE)[1]) / 1024  # type: ignore[index]


def serving(processes: int, candidates: int) -> tuple[float, float]:
    """Seconds until all are ready, and MB in total."""
    started, start = [], time.perf_counter()
    for number in range(processes):
        name, channels = f"bench-candidates-{os.getpid()}-{number}", 8 if processes == 1 else 1
        words = [sys.executable, "-P", "-c", SERVER.format(size=SIZE), name]
        started.append(
            subprocess.Popen(
                [*words, str(candidates), str(channels)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
    try:
        for process in started:
            assert process.stdout and process.stdout.readline() == b"ready\n"
        took = time.perf_counter() - start
        return took, sum(resident(process.pid) for process in started)
    finally:
        for process in started:
            process.communicate(b"")


def main() -> int:
    parser = options(__doc__, rounds=5)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--candidates", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = fetch_zopfli(Path(folder)).parent.glob("*.c")
        corpus = Corpus.from_sources(*sorted(sources))
        figures: dict[str, Any] = compilations(corpus, args.workers, args.rounds, Path(folder))
    print(f"{len(corpus)} files, {args.workers} at once, {figures['questions']:.0f} questions each")
    for name in ("clang", "task", "collect"):
        ratio = figures[name] / figures["clang"]
        print(f"  {name:8} {figures[name]:7.0f} compilations a minute, {ratio:.2f} x")
    for name, shape in (
        ("one host", (1, args.candidates)),
        ("a process each", (args.candidates, 1)),
    ):
        seconds, megabytes = serving(*shape)
        figures[name] = {"seconds": seconds, "MB": megabytes}
        print(
            f"  {args.candidates} candidates, {name:14} {seconds:6.2f} s to start, {megabytes:6.0f} MB"
        )
    write(args.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One host and many compilers on many cores: python bench many_cores [--quick] [--json FILE]

At most six minutes, with Python, numpy and a C compiler; no cmake, clang, network, nor an installed
shmbridge. 1 to 64 runners in C, at most four for each CPU, ask a host in C back to back and with the
stored gaps of a compilation of zstd; also several hosts with equal shares of the runners, as `serve
--workers` has them. The rules of waiting are this checkout's with other times of spinning. Where the
packages are there: steps of vector environments with as many compilers, and 64 requests (38 int64
and 1024 float32) to a GPU and back. Every round measures each cell once; medians.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).absolute().parents[1]))  # for python bench/many_cores.py
from bench.builds import compiled
from bench.compilers.replay import PROGRAMS, Way, cell, recorded_gaps
from bench.program import ROOT, machine, options, started, write

SPIN = "SPIN_NS = 200 * 1000"  # in wait.c
RULES = {"200 us": SPIN, "1 ms": "SPIN_NS = 1000 * 1000", "sleep": "SPIN_NS = 0"}
BACK_TO_BACK, WITH_GAPS = 50_000, 300  # questions of each runner
MINUTES = 5.0  # for the rounds; building and the last round come on top
FIGURES = ("p50", "p99", "host", "both", "rate")
GPU = 64, 38 * 8 + 4096  # requests, bytes of one


def build(folder: Path) -> None:
    """The programs of a compilation's replay, with each rule."""
    include = [f"-I{ROOT / part}" for part in ("cdef/include", "cdef/src", "tests/c")]
    version = '-DSHMB_VERSION_TEXT="0"'
    cc = [
        "cc",
        "-std=c11",
        "-O3",
        "-D_GNU_SOURCE",
        version,
        f"-I{ROOT / 'bench/compilers'}",
        *include,
    ]
    wait = ROOT / "cdef/src/segment/wait.c"
    core = [file for file in (ROOT / "cdef/src").rglob("*.c") if file != wait]

    def run(*words: object) -> None:
        subprocess.run([*cc, *map(str, words)], check=True, cwd=folder)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda file: run("-c", file), core))
    objects = [folder / f"{file.stem}.o" for file in core]
    for rule, text in RULES.items():
        source = folder / "rule.c"
        source.write_text(wait.read_text().replace(SPIN, text))
        for names in PROGRAMS:
            files = [ROOT / f"bench/compilers/{name}.c" for name in names]
            run(source, *files, *objects, "-pthread", "-ldl", "-o", folder / f"{rule} {names[0]}")


def measure(
    folder: Path, rule: str, runners: int, hosts: int, gaps: str, count: int, steps: str
) -> dict[str, float]:
    """us, and thousand questions a second. All runners begin with the same gap: the worst case."""
    with ExitStack() as stack:
        bridges = [
            stack.enter_context(started(folder / f"{rule} compilation_host", "shm", runners))
            for _ in range(hosts)
        ]
        urls = [f"shm://{line}" for _, line in bridges]
        servers = [process.pid for process, _ in bridges]
        way = Way(rule, folder / f"{rule} compilation", urls, servers)
        found = cell(way, gaps, steps, runners, 0, count)
    return {**found, "rate": runners * count / found["wall"] * 1e3}


def steps_of_environments(folder: Path, sizes: list[int]) -> list[dict[str, Any]]:
    from bench.training import steps

    program = compiled(ROOT / "bench/training/steps_environment.c", folder / "steps_environment")
    return [{"compilers": n, **steps.measure("vector", n, program, 0.5)} for n in sizes]


def to_the_gpu() -> dict[str, float]:
    """us to the GPU and back: from a segment whose slots are registered, or from other memory."""
    import mmap

    import torch

    if not torch.cuda.is_available():
        raise ImportError("no GPU")
    rows, size = GPU
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(rows * size)
        segment = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8).view(rows, size)
        pageable, pinned = segment.clone(), segment.clone().pin_memory()
        torch.cuda.check_error(
            torch.cuda.cudart().cudaHostRegister(segment.data_ptr(), rows * size, 0)
        )
        device, found = torch.empty((rows, size), dtype=torch.uint8, device="cuda"), {}
        for name, near in (("pageable", pageable), ("pinned", pinned), ("segment", segment)):
            took = []
            for _ in range(500):
                start = time.perf_counter()
                device.copy_(near, non_blocking=True)
                near[:, :8].copy_(device[:, :8].contiguous(), non_blocking=True)
                torch.cuda.synchronize()
                took.append((time.perf_counter() - start) * 1e6)
            found[name] = statistics.median(took)
        torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(segment.data_ptr()))
    return found


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of fewer cells")
    given = parser.parse_args()
    cpus = len(os.sched_getaffinity(0))
    sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= 4 * cpus]
    results: dict[str, Any] = {"machine": machine(("torch", "gymnasium")), "rows": []}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        build(folder)
        steps = subprocess.check_output([folder / "200 us compilation", "calibrate"], text=True)
        shapes = {"back to back": ("0", BACK_TO_BACK), "gaps": (recorded_gaps(folder), WITH_GAPS)}
        cells = [
            (*row, hosts)
            for *row, hosts in product(shapes, sizes, RULES, (1, max(2, cpus // 4)))
            if hosts <= row[1] and not (given.quick and (hosts > 1 or row[1] not in sizes[::2]))
        ]
        found: dict[Any, list[dict[str, float]]] = {each: [] for each in cells}
        until = time.monotonic() + (0 if given.quick else MINUTES * 60)
        while True:
            for shape, n, rule, hosts in cells:
                gaps, count = shapes[shape]
                one = measure(folder, rule, n, hosts, gaps, count, steps.strip())
                found[shape, n, rule, hosts].append(one)
            if time.monotonic() > until:
                break
        print(*("shape", "runners", "rule", "hosts", *FIGURES, "rounds"), sep="\t")
        for key, rounds in found.items():
            row = {f: statistics.median(each[f] for each in rounds) for f in FIGURES}
            print(*key, *(f"{value:.2f}" for value in row.values()), len(rounds), sep="\t")
            names = dict(zip(("shape", "runners", "rule", "hosts"), key, strict=True))
            results["rows"].append({**names, **row, "rounds": rounds})
        for name, work in (
            ("environments", lambda: steps_of_environments(folder, sizes)),
            ("gpu", to_the_gpu),
        ):
            try:
                results[name] = work()
            except (ImportError, OSError, subprocess.CalledProcessError) as error:
                results[name] = f"left out: {error}"
            print(name, results[name])
    write(given.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

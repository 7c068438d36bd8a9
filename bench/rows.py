"""What is measured: one function for each row of the table in README.md. Each prints, and returns what goes into the JSON.

effort: 1 for figures to quote, 0 for a smoke test."""

from __future__ import annotations

import math
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pairs import Pair, Place, Row, alternate

SIZES = (4, 2_000, 100_000, 10_000_000)  # bytes; 2000 is float32[500]
ALONE = 5_000  # ns: a bare line's round trip is never that slow while both sides run


def rounds_of(effort: float, full: int) -> int:
    return max(1 if effort == 0 else 5, round(full * effort))


def show(results: Sequence[dict[str, Any]], of: str) -> None:
    print(f"{'':28}{'bytes':>10}{'ns':>12}{'x ' + of:>10}{'quartiles':>16}{'p50':>10}{'p90':>10}{'p99':>10}{'p99.9':>10}")
    for r in results:
        low, high = r["ratio_quartiles"]
        singles = "".join(f"{'-' if v is None else v:>10}" for v in r["single_ns"].values())
        print(f"{r['pair']:28}{r['bytes']:>10}{r['ns']:>12}{r['ratio']:>10}{f'{low} - {high}':>16}{singles}")


def round_trips(place: Place, effort: float) -> Any:
    """round trips, in multiples of the bare cache line's; single round trips (p50 ...) are timed alone"""
    with ExitStack() as stack:

        def pair(name: str, far: Sequence[str], near: Sequence[str]) -> Pair:
            return stack.enter_context(Pair(name, far, near))

        line, lines, semaphore, pipe = (
            stack.enter_context(place.bare(kind)) for kind in ("line", "lines", "semaphore", "pipe")
        )
        measured = [
            pair("C - C, spin", place.c_host("spin"), place.c_runner("spin")),
            pair("C - C", place.c_host("adaptive"), place.c_runner("adaptive")),
            pair("C - Python - C, spin", place.python_host("spin"), place.c_runner("spin")),
            pair("C - Python - C", place.python_host("adaptive"), place.c_runner("adaptive")),
            pair("C - Python, busy - C", place.python_host("adaptive", "busy"), place.c_runner("adaptive")),
            pair("Python - Python, spin", place.python_host("spin"), place.python_runner("spin")),
            pair("Python - Python", place.python_host("adaptive"), place.python_runner("adaptive")),
        ]
        table = [Row(line, 4), Row(lines, 4)]
        table += [Row(p, size) for size in SIZES for p in (line, semaphore, pipe, *measured) if size > 4 or p is not line]
        seconds = 0.02
        lost = alternate(table, line, 4, rounds_of(effort, 60), seconds, ALONE if effort else math.inf)
        results = [row.result() for row in table]
    show(results, "line")
    print(f"{lost} blocks lost to other load")
    return {"rows": results, "lost": lost}


def parked(place: Place, effort: float) -> Any:
    """a parked round trip (wait=block), in multiples of two bare semaphores'"""
    with (
        place.bare("semaphore") as semaphore,
        Pair("C - C, block", place.c_host("block"), place.c_runner("block")) as c,
        Pair("C - Python - C, block", place.python_host("block"), place.c_runner("block")) as python,
    ):
        table = [Row(semaphore, 4), Row(c, 4), Row(python, 4)]
        alternate(table, semaphore, 4, rounds_of(effort, 60), 0.05)
        results = [row.result() for row in table]
    show(results, "sem")
    return results


def instructions(place: Place, effort: float) -> Any:
    """the library's instructions per message, both ends driven by turns in one thread, counted one by one"""
    messages = 100 if effort else 2
    counts = {}
    for size in (4, 400, 4_000, 40_000, 400_000, 4_000_000, 64 << 20):
        bare, full = (count(place, size, n) for n in (0, messages))
        counts[size] = (full - bare) / messages
        print(f"{size:>10} bytes {counts[size]:>10.1f}")
    return counts


def count(place: Place, size: int, messages: int) -> int:
    program = [str(place.build / "count"), str(place.build / "turns"), str(size), str(messages)]
    return int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def dense(place: Place, effort: float) -> Any:
    """C - Python - C through one dense layer in ONNX Runtime, float32[500 ... 50000], in multiples of the same in process"""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401

        from dense import SWEEP, write
    except ImportError as error:
        print(f"left out: {error}")
        return None
    results = {}
    for outputs in (1, 64):
        models = place.build / f"dense{outputs}"
        write(models, outputs)
        with (
            Pair("in process", None, place.dense(models)) as inside,
            Pair("host", place.python_host("spin", "idle", 1, 1 << 20, str(models)), place.c_runner("spin")) as outside,
        ):
            ratios, sums = [], []
            for _ in range(rounds_of(effort, 12)):
                # in process and through the host by turns, length by length
                pairs = [(inside.block(4 * n, 0.02)[0], outside.block(4 * n, 0.02)[0]) for n in SWEEP]
                sums.append([sum(side) for side in zip(*pairs, strict=True)])
                ratios.append(sums[-1][1] / sums[-1][0])
        here, there = (statistics.median(s[i] for s in sums) / 1000 for i in (0, 1))
        results[outputs] = {"in_process_us": round(here, 1), "host_us": round(there, 1), "ratio": statistics.median(ratios)}
        print(f"{outputs:>4} outputs: sum in process {here:.1f} us, through the host {there:.1f} us, x {results[outputs]['ratio']:.3f}")
    return results


def system_calls(place: Place, effort: float) -> Any:
    """system calls of both sides in a second of spinning round trips, less those of a tenth of a second"""
    if not shutil.which("strace"):
        print("left out: strace is not installed")
        return None
    results = {}
    for name, host in (("C - C, spin", place.c_host("spin")), ("C - Python - C, spin", place.python_host("spin"))):
        with Pair(name, host, place.c_runner("spin")) as pair:
            (few, _), (many, trips) = (traced(place, pair, s) for s in (0.1, 1 if effort else 0.2))
        results[name] = {"calls": many - few, "round_trips": trips}
        print(f"{name:28}{many - few} system calls in {trips} round trips more")
    return results


def traced(place: Place, pair: Pair, seconds: float) -> tuple[int, int]:
    """System calls, and round trips, in one block."""
    assert pair.near and pair.far
    log = place.build / "strace"
    tracer = subprocess.Popen(
        ["strace", "-f", "-q", "-o", str(log), "-p", str(pair.near.pid), "-p", str(pair.far.pid)],
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    _, singles = pair.block(4, seconds)
    tracer.terminate()
    tracer.wait()
    calls = sum("(" in line and "resumed>" not in line for line in log.read_text().splitlines())
    return calls, len(singles) * 33


def idle(place: Place, effort: float) -> Any:
    """CPU of an idle host with 64 idle runners, in % of a core"""
    seconds = 10 if effort else 0.5
    results = {}
    for name, host in (
        ("C host", place.c_host("adaptive", 64, 4096)),
        ("Python host", place.python_host("adaptive", "idle", 64, 4096)),
    ):
        with ExitStack() as stack:
            first = stack.enter_context(Pair(name, host, place.c_runner("adaptive")))
            assert first.far
            first.signal(signal.SIGCONT)  # a stopped host would use no CPU
            for _ in range(63):
                near = [part.replace("{NAME}", first.bridge) for part in place.c_runner("adaptive")]
                stack.enter_context(Pair("idle runner", None, near))
            time.sleep(1 if effort else 0.1)
            before = cpu_ns(first.far.pid)
            time.sleep(seconds)
            percent = (cpu_ns(first.far.pid) - before) / seconds / 1e7
        results[name] = round(percent, 3)
        print(f"{name:28}{percent:.3f} %")
    return results


def cpu_ns(pid: int) -> int:
    """Time on a CPU of all of a process's threads, in ns."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


ROWS: dict[str, Callable[[Place, float], Any]] = {
    "round_trips": round_trips,
    "instructions": instructions,
    "parked": parked,
    "dense": dense,
    "system_calls": system_calls,
    "idle": idle,
}

"""A function for each row of the table in README.md. Each prints its figures and returns its part
of the JSON.

effort: 1 for figures to quote, 0 for a smoke test."""

import math
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from bench.program import cpu_of
from bench.transport.pairs import ROOM, Pair, Place, Row, alternate

SIZES = (4, 2_000, 100_000, 10_000_000)  # bytes; 2000 is float32[500]
ANSWERS = ("1.0", "1", "np.float32(1)", "np.int64(1)", "np.bool_(1)", "{'a': 1.0}")
ALONE = 5_000  # ns: a bare line's round trip is never that slow while both sides run


ROUNDS = 4  # of blocks between restarts of all processes


def starts_of(effort: float, full: int) -> int:
    """Restarts everything often, since the distance of a cache line depends on its place in
    memory."""
    return max(1 if effort == 0 else 3, round(full * effort))


Start = Callable[[ExitStack], Sequence[tuple[Pair, int]]]


def alternating(
    start: Start, starts: int, seconds: float, alone: float = math.inf
) -> tuple[list[dict[str, Any]], int]:
    """Measures start's pairs at all sizes, with several restarts; the first pair is the base of the
    ratios."""
    table: list[Row] = []
    lost = 0
    for _ in range(starts):
        with ExitStack() as stack:
            pairs = start(stack)
            table = table or [Row(pair.name, size) for pair, size in pairs]
            rows = [(row, pair) for row, (pair, _) in zip(table, pairs, strict=True)]
            lost += alternate(rows, *pairs[0], ROUNDS if starts > 1 else 1, seconds, alone)
    return [row.result() for row in table], lost


def show(results: Sequence[dict[str, Any]], base: str) -> None:
    """x same: relative to the base at the same size."""
    same = {r["bytes"]: r["ns"] for r in results if r["pair"] == base}
    columns = ("bytes", "ns", f"x {base}", "quartiles", "x same", "p50", "p90", "p99", "p99.9")
    print(f"{'':24}" + "".join(f"{c:>{22 if c == 'quartiles' else 12}}" for c in columns))
    for r in results:
        low, high = r["ratio_quartiles"]
        singles = "".join(f"{'-' if v is None else v:>12}" for v in r["single_ns"].values())
        beside = f"{r['ns'] / same[r['bytes']]:.2f}"
        print(
            f"{r['pair']:24}{r['bytes']:>12}{r['ns']:>12}{r['ratio']:>12}{f'{low} - {high}':>22}{beside:>12}{singles}"
        )


def round_trips(place: Place, effort: float) -> Any:
    """round trips relative to the bare cache line; single round trips (p50 ...) are timed
    separately"""

    def start(stack: ExitStack) -> list[tuple[Pair, int]]:
        line, lines, semaphore, pipe = (
            stack.enter_context(place.bare(kind)) for kind in ("line", "lines", "semaphore", "pipe")
        )
        measured = [
            stack.enter_context(Pair(name, far, near))
            for name, far, near in (
                ("C - C, spin", place.c_host("spin"), place.c_runner("spin")),
                ("C - C", place.c_host("adaptive"), place.c_runner("adaptive")),
                ("C - Python - C, spin", place.python_host("spin"), place.c_runner("spin")),
                ("C - Python - C", place.python_host("adaptive"), place.c_runner("adaptive")),
                (
                    "C - Python, busy - C",
                    place.python_host("adaptive", "busy"),
                    place.c_runner("adaptive"),
                ),
                ("Python - Python, spin", place.python_host("spin"), place.python_runner("spin")),
                ("Python - Python", place.python_host("adaptive"), place.python_runner("adaptive")),
            )
        ]
        sized = [(pair, size) for size in SIZES for pair in (line, semaphore, pipe, *measured)]
        return [sized[0], (lines, 4), *sized[1:]]

    results, lost = alternating(start, starts_of(effort, 20), 0.02, ALONE if effort else math.inf)
    show(results, "line")
    print(f"{lost} blocks lost to other load")
    return {"rows": results, "lost": lost}


def parked(place: Place, effort: float) -> Any:
    """a parked round trip (wait=block) relative to two bare semaphores"""

    def start(stack: ExitStack) -> list[tuple[Pair, int]]:
        pairs = [stack.enter_context(place.bare("semaphore"))]
        hosts = {"C - C, block": place.c_host, "C - Python - C, block": place.python_host}
        for name, host in hosts.items():
            pair = Pair(name, host("block"), place.c_runner("block"))
            pairs.append(stack.enter_context(pair))
        return [(pair, 4) for pair in pairs]

    results, _ = alternating(start, starts_of(effort, 15), 0.05)
    show(results, "semaphore")
    return results


def replies(place: Place, effort: float) -> Any:
    """round trips by the type of a Python host's advice, relative to a Python float"""

    def start(stack: ExitStack) -> list[tuple[Pair, int]]:
        pairs = []
        for answer in ANSWERS:
            host = place.python_host("spin", "idle", 1, ROOM, answer)
            pairs.append(stack.enter_context(Pair(answer, host, place.c_runner("spin", "any"))))
        return [(pair, 2_000) for pair in pairs]

    results, _ = alternating(start, starts_of(effort, 10), 0.02)
    show(results, ANSWERS[0])
    return results


def instructions(place: Place, effort: float) -> Any:
    """the library's instructions per message, both ends alternating in one thread,
    single-stepped"""
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


def system_calls(place: Place, effort: float) -> Any:
    """system calls of both sides in a second of spinning round trips, minus those of a tenth of a
    second"""
    if not shutil.which("strace"):
        print("left out: strace is not installed")
        return None
    results = {}
    for name, host in (
        ("C - C, spin", place.c_host("spin")),
        ("C - Python - C, spin", place.python_host("spin")),
    ):
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
    # minus the near side's writes of samples
    calls = sum(
        "(" in line and "write(1," not in line and "resumed>" not in line
        for line in log.read_text().splitlines()
    )
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
            before = cpu_of(first.far.pid)
            time.sleep(seconds)
            percent = (cpu_of(first.far.pid) - before) / seconds * 100
        results[name] = round(percent, 3)
        print(f"{name:28}{percent:.3f} %")
    return results


ROWS: dict[str, Callable[[Place, float], Any]] = {
    "round_trips": round_trips,
    "instructions": instructions,
    "parked": parked,
    "replies": replies,
    "system_calls": system_calls,
    "idle": idle,
}

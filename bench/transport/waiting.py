"""Every way of waiting in every situation: python bench waiting [--only ROWS] [--json FILE].

waiting.c is both sides, in C. See bench/README.md."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from program import busy_seconds, options, quartiles, write
from run import build, machine

COLUMNS = ("pipe", "semaphore", "block", "spin", "adaptive")
TARGETS = 16  # of the make
FIGURES = ("p50", "p99", "cpu", "rate")
CGROUPS = Path("/sys/fs/cgroup")
Cells = dict[str, list[dict[str, float]]]  # by way of waiting


@dataclass
class Row:
    """A situation: other load, the CPUs of both sides, and how they ask."""

    about: str
    loops: int = 0  # endless loops
    loops_nice: int = 0
    comes_and_goes: float = 0  # seconds between stopping and continuing the loops
    runners: int = 1
    shape: str = "think:0"
    cpus: tuple[int, int] = (0, 0)  # masks: the host's, the runners'; 0 is any
    nice: tuple[int, int] = (0, 0)
    quota: float = 0  # CPUs, of a cgroup that both sides are in
    nested: bool = False  # in a group below it
    seconds: float = 0.3  # at least


ROWS = {
    "idle": Row("no other load"),
    "loops1": Row("one endless loop", loops=1),
    "loops2": Row("two endless loops", loops=2),
    "loops4": Row("four endless loops", loops=4),
    "loops8": Row("eight endless loops", loops=8, seconds=0.6),
    "apart": Row("each side pinned to its own CPU", cpus=(1, 2)),
    "together": Row("both sides pinned to the same CPU", cpus=(1, 1)),
    "one_cpu": Row("both sides pinned to one CPU, a loop on it", cpus=(1, 1), loops=2),
    "quota": Row("a cgroup's quota of 1.5 CPUs", quota=1.5),
    "quota_nested": Row("the quota of a group further up", quota=1.5, nested=True),
    "runners2": Row("two runners", runners=2),
    "runners8": Row("eight runners", runners=8),
    "runners8_loops2": Row("eight runners, two loops", runners=8, loops=2),
    "runners8_every50": Row("eight runners, 50 us", runners=8, shape="think:50"),
    "runners8_every50_loops2": Row("the same with two loops", runners=8, loops=2, shape="think:50"),
    "runners64": Row("64 runners", runners=64, seconds=0.6),
    "nice": Row(
        "runner and two loops at nice 10, the host at 0", loops=2, loops_nice=10, nice=(0, 10)
    ),
    "nice_both": Row("both sides at nice 10, two loops", loops=2, nice=(10, 10), seconds=0.6),
    "every1": Row("1 us of computing between two questions", shape="think:1"),
    "every50": Row("50 us", shape="think:50"),
    "every500": Row("500 us", shape="think:500"),
    "every5000": Row("5 ms", shape="think:5000", seconds=1),
    "every50_loops2": Row("50 us, two loops", shape="think:50", loops=2),
    "bursts": Row("200 questions after every 20 ms of sleep", shape="burst:200:20000"),
    "comes_and_goes": Row(
        "two loops, a second on and a second off", loops=2, comes_and_goes=1, seconds=2
    ),
    "make": Row("a make -j4 of files that are compiled and ask", runners=TARGETS, shape="make"),
}


@contextlib.contextmanager
def beside(row: Row) -> Iterator[None]:
    """The endless loops. A shell stops and continues them."""
    cpus = (
        set(range(64))
        if row.cpus[0] != row.cpus[1] or not row.cpus[0]
        else {row.cpus[0].bit_length() - 1}
    )

    def settle() -> None:
        os.nice(row.loops_nice)
        os.sched_setaffinity(0, cpus & os.sched_getaffinity(0))

    loops = [
        subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=settle)
        for _ in range(row.loops)
    ]
    ids = " ".join(str(loop.pid) for loop in loops)
    if row.comes_and_goes:
        pause = f"sleep {row.comes_and_goes}"
        turns = f"while :; do {pause}; kill -STOP {ids}; {pause}; kill -CONT {ids}; done"
        loops.append(subprocess.Popen(["sh", "-c", turns], start_new_session=True))
    try:
        yield
    finally:
        if row.comes_and_goes:
            os.killpg(loops[-1].pid, signal.SIGKILL)
        for loop in loops:
            loop.kill()
            loop.wait()


class NoCgroup(Exception):
    """Cgroups are not available here."""


@contextlib.contextmanager
def cgroup(row: Row) -> Iterator[list[Path]]:
    """The file in which a process registers for the row's quota."""
    if not row.quota:
        yield []
        return
    old = CGROUPS / "cpu"
    group = (old if old.is_dir() else CGROUPS) / f"shmbridge-{os.getpid()}"
    below = group / "below"
    try:
        group.mkdir()
        if old.is_dir():
            (group / "cpu.cfs_quota_us").write_text(str(round(row.quota * 100_000)))
        else:
            (group / "cpu.max").write_text(f"{round(row.quota * 100_000)} 100000")
        if row.nested:
            below.mkdir()
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NoCgroup(f"no cgroup can be made here: {error}") from error
    try:
        yield [(below if row.nested else group) / "cgroup.procs"]
    finally:
        time.sleep(0.05)  # its last process is still exiting
        for directory in (below, group):
            with contextlib.suppress(FileNotFoundError):
                directory.rmdir()


def makefile(directory: Path) -> None:
    """Targets that compile a file of a few functions and ask."""
    functions = "\n".join(
        f"int f{i}(int *a, int n) {{ int s = 0; for (int i = 0; i < n; i++) s += a[i] * {i}; return s; }}"
        for i in range(40)
    )
    (directory / "part.c").write_text(functions)
    names = " ".join(f"t{i}" for i in range(TARGETS))
    rules = "".join(f"t{i}:\n\tcc -O2 -c part.c -o $@.o && $(ASK) {i}\n" for i in range(TARGETS))
    (directory / "Makefile").write_text(f"all: {names}\n{rules}")


def cell(program: Path, kind: str, row: Row, seconds: float, procs: list[Path]) -> dict[str, float]:
    """Measures one way of waiting for this long, with a fresh host and fresh runners."""

    def enter() -> None:
        for path in procs:
            path.write_text(str(os.getpid()))

    shape = f"make:{program.parent}" if row.shape == "make" else row.shape
    numbers = [
        row.runners,
        round(250 * seconds),
        round(1000 * seconds),
        shape,
        *row.cpus,
        *row.nice,
    ]
    busy, began = busy_seconds(), time.monotonic()
    done = subprocess.run(
        [str(program), kind, *map(str, numbers)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=enter,
        timeout=100,
    )
    system = (busy_seconds() - busy) / (time.monotonic() - began)
    took, count, cpu, p50, p99 = map(float, done.stdout.split())
    return {
        "rate": count / took * 1e9,
        "p50": p50 / 1000 if count else took / 1000,
        "p99": p99 / 1000 if count else took / 1000,
        "cpu": cpu / 1000 / max(count, 1),
        "system": system,
    }


def reference(cells: Cells) -> str:
    """Spin or sleep, whichever has the lower median; sleep if spinning takes more than three times
    its CPU."""
    spin, sleep = (
        {f: statistics.median(c[f] for c in cells[kind]) for f in FIGURES}
        for kind in ("spin", "block")
    )
    return "spin" if spin["p50"] < sleep["p50"] and spin["cpu"] <= 3 * sleep["cpu"] else "block"


def ratios(cells: list[dict[str, float]], base: list[dict[str, float]], figure: str) -> list[float]:
    """Quartiles of paired ratios."""
    return quartiles([a[figure] / max(b[figure], 1e-9) for a, b in zip(cells, base, strict=True)])


def judge(cells: Cells) -> dict[str, Any]:
    """Adaptive compared with its reference: the quartiles of ratios, and the figures beyond the
    limit."""
    base = reference(cells)
    result: dict[str, Any] = {
        f: ratios(cells["adaptive"], cells[base], f) for f in ("p50", "cpu", "p99")
    }
    result["rate"] = ratios(cells["adaptive"], cells["pipe"], "rate")
    limits = {"p50": 1.5, "cpu": 1.5, "p99": 3}
    misses = [f for f, most in limits.items() if result[f][1] > most]
    misses += ["rate"] if result["rate"][1] < 0.5 else []
    return {"reference": base, "misses": misses, **result}


def show(cells: Cells, verdict: dict[str, Any]) -> None:
    print(
        f"  {'':14}{'p50 us':>10}{'p99 us':>10}{'CPU us':>9}{'system':>8}{'rate':>10}  (quartiles)"
    )
    for kind, found in cells.items():
        middle = {f: statistics.median(c[f] for c in found) for f in (*FIGURES, "system")}
        low, _, high = quartiles([c["rate"] for c in found])
        print(
            f"  {kind:14}{middle['p50']:10.2f}{middle['p99']:10.1f}{middle['cpu']:9.2f}"
            f"{middle['system']:8.2f}{middle['rate']:10.0f}  ({low:.0f} to {high:.0f})"
        )
    ratios_of = (
        f"{f} {verdict[f][1]:.2f} ({verdict[f][0]:.2f} to {verdict[f][2]:.2f})"
        for f in ("p50", "cpu", "p99")
    )
    print(
        f"  {'misses ' + ', '.join(verdict['misses']) if verdict['misses'] else 'good'}; "
        f"{', '.join(ratios_of)} of {verdict['reference']}; rate {verdict['rate'][1]:.2f} of pipes",
        flush=True,
    )


def measure(program: Path, row: Row, alternations: int, seconds: float) -> Cells:
    """All ways of waiting in one situation. Errors: NoCgroup."""
    cells: Cells = {kind: [] for kind in COLUMNS}
    with cgroup(row) as procs, beside(row):
        for _ in range(alternations):
            for kind in COLUMNS:
                cells[kind].append(cell(program, kind, row, seconds, procs))
    return cells


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(ROWS)}")
    parser.add_argument("--alternations", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0, help="of a cell, at most the row's own")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(ROWS)
    if set(chosen) - ROWS.keys():
        parser.error(f"--only: expected some of {', '.join(ROWS)}; found {given.only}")
    results: dict[str, Any] = {"machine": machine(), "rows": {}}
    with tempfile.TemporaryDirectory() as directory:
        build(Path(directory), [["waiting"]])
        makefile(Path(directory))
        for name in chosen:
            row = ROWS[name]
            seconds = min(given.seconds or row.seconds, row.seconds)
            print(f"\n== {name}: {row.about}", flush=True)
            try:
                cells = measure(Path(directory) / "waiting", row, given.alternations, seconds)
            except NoCgroup as error:
                print(f"  skipped: {error}")
                continue
            verdict = judge(cells)
            show(cells, verdict)
            results["rows"][name] = {"about": row.about, "cells": cells, "verdict": verdict}
            write(given.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

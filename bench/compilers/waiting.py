"""The rule of waiting, compared in a compilation's replay: python bench waiting [--against CHECKOUT ...]

compilation.c asks a host in C, with recorded pauses or with none, from one, two and four compilers,
with and without two endless loops. `rule` is this checkout's rule, each --against that of another
checkout; `spin` and `block` are the other policies of the API, and `pipes` LLVM's channel. A pair
measures all of them once; pairs in which the machine lost more than 2 % to others are discarded.
Prints us for a question, and ratios to `rule` with their 95 % intervals (paired bootstrap).
"""

import math
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.builds import build
from bench.compilers.replay import PROGRAMS, Way, cell, recorded_gaps
from bench.program import ROOT, endless_loops, machine, options, started, turns, write

RATIOS = ("mean", "both", "wall")
SITUATIONS = [(n, loops, pauses) for pauses in (True, False) for loops in (0, 2) for n in (1, 2, 4)]


def stolen() -> float:
    """Seconds that other virtual machines had, of all CPUs since boot."""
    return int(Path("/proc/stat").read_text().split(None, 9)[8]) / 100


def interval(logs: list[float]) -> list[float]:
    """The mean ratio, and where it lies with 95 % probability."""
    draw = random.Random(1)
    means = sorted(mean(draw.choices(logs, k=len(logs))) for _ in range(1000))
    return [math.exp(each) for each in (mean(logs), means[25], means[974])]


def contenders(folder: Path, against: list[Path], stack: ExitStack) -> list[Way]:
    ways = []
    for name, tree in [("rule", ROOT), *((each.name, each) for each in against)]:
        built = folder / f"build-{len(ways)}"
        built.mkdir()
        build(built, PROGRAMS, tree)
        policies = ("adaptive", "spin", "block") if tree == ROOT else ("adaptive",)
        for policy in policies:
            host = started(built / "compilation_host", "shm", 4, policy)
            process, bridge = stack.enter_context(host)
            shown = name if policy == "adaptive" else policy
            url = f"shm://{bridge}?wait={policy}"
            ways.append(Way(shown, built / "compilation", url, [process.pid]))
    reader = [folder / "build-0" / "compilation_host", "llvm", "{base}"]
    return [*ways, Way("pipes", ways[0].program, "llvm:{base}", each=reader)]


def measure(
    ways: list[Way], jobs: int, gaps: str, steps: str, pairs: int, questions: int
) -> dict[str, list[dict[str, Any]]]:
    cells: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
    for i in range(pairs):
        before, began = stolen(), time.monotonic()
        pair = {
            way.name: cell(way, gaps, steps, jobs, i * questions, questions)
            for way in turns(ways, i)
        }
        if stolen() - before < 0.02 * (time.monotonic() - began):
            for name, found in pair.items():
                cells[name].append(found)
    return cells


def show(cells: dict[str, list[dict[str, Any]]]) -> None:
    for name, found in cells.items():
        middle = {f: median(each[f] for each in found) for f in ("mean", "p50", "p99", "host")}
        print(f"  {name:12}", *(f"{f} {value:8.2f}" for f, value in middle.items()), end="  /rule:")
        for figure in RATIOS:
            pairs = zip(found, cells["rule"], strict=True)
            ratio, low, high = interval([math.log(a[figure] / b[figure]) for a, b in pairs])
            print(f"  {figure} {ratio:.2f} ({low:.2f} to {high:.2f})", end="")
        print(flush=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--against", type=Path, nargs="*", default=[], metavar="CHECKOUT")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--questions", type=int, default=1000, help="of each compiler")
    given = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(), "situations": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = contenders(folder, given.against, stack)
        steps = subprocess.check_output([ways[0].program, "calibrate"], text=True).strip()
        for jobs, loops, pauses in SITUATIONS:
            gaps = recorded_gaps(folder) if pauses else "0"
            questions = given.questions if pauses else 20 * given.questions
            with endless_loops(loops):
                cells = measure(ways, jobs, gaps, steps, given.pairs, questions)
            about = {"compilers": jobs, "loops": loops, "pauses": pauses}
            print(f"\n== {about}, {len(cells['rule'])} pairs", flush=True)
            if cells["rule"]:
                show(cells)
            results["situations"].append({**about, "cells": cells})
            write(given.json, results)


if __name__ == "__main__":
    sys.exit(main())

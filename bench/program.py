"""What these programs share: options, the page's table and the JSON of the figures, other programs
and their CPU time, and the tests' builders of small models."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import sysconfig
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar

BENCH = Path(__file__).absolute().parent
ROOT = BENCH.parent
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
Each = TypeVar("Each")


def options(about: str | None, rounds: int = 0) -> ArgumentParser:
    """A parser with --json, and --rounds with that default."""
    parser = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"default {rounds}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    return parser


def write(file: Path | None, found: Any) -> None:
    if file:
        file.write_text(json.dumps(found, indent=1, default=vars) + "\n")


def report(name: str, found: dict[str, Any], file: Path | None) -> None:
    """Prints the table that docs/results.md has under that name, and writes the JSON."""
    from results_page import TABLES

    print("", *TABLES[name](found), sep="\n")
    write(file, found)


def turns(all_ways: Sequence[Each], number: int) -> list[Each]:
    """The order of a round, of which each begins with another way."""
    first = number % len(all_ways)
    return [*all_ways[first:], *all_ways[:first]]


def quartiles(values: Sequence[float]) -> list[float]:
    return quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process so far, also of threads that have ended: the clock of
    clock_getcpuclockid."""
    return time.clock_gettime(~pid << 3 | 2)


def cpu_used(who: int) -> float:
    """Seconds of CPU of this process (resource.RUSAGE_SELF), or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def busy_seconds() -> float:
    """Of all CPUs since boot."""
    user, nice, system, _, _, irq, soft = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def compiled(source: Path, to: Path, *flags: str) -> Path:
    """A program in C or C++ with the installed library."""
    compiler = ["cc", "-std=c11"] if source.suffix == ".c" else ["c++", "-std=c++17"]
    library = subprocess.check_output([SHMBRIDGE, "config", "--cflags", "--libs"], text=True)
    words = [*compiler, "-O2", *flags, source, *shlex.split(library), "-o", to]
    subprocess.run(words, check=True)
    return to


@contextmanager
def endless_loops(count: int) -> Iterator[None]:
    """This many other processes compute during the block."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def started(*command: object, **options: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a program during the block, which begins when the program has printed a line. RuntimeError:
    it has ended instead."""
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options)
    assert process.stdout
    try:
        if not (line := process.stdout.readline().strip()):
            raise RuntimeError(f"{' '.join(words)} ended with {process.wait()}")
        yield process, line
    finally:
        process.terminate()
        process.communicate()


def onnx_models() -> Any:
    """Its functions write ONNX models. ImportError: the package onnx is not installed."""
    sys.path.append(str(ROOT / "tests"))
    from support import onnx_models  # type: ignore[import-not-found]

    return onnx_models


def tflite_graph() -> Any:
    """A graph that writes a TFLite model."""
    sys.path.append(str(ROOT / "tests"))
    from support.tflite_models import Graph  # type: ignore[import-not-found]

    return Graph()

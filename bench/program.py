"""What these programs share: options, the JSON of the figures, other programs and their CPU time, and
the machine that all figures depend on."""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
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


def turns(all_ways: Sequence[Each], number: int) -> list[Each]:
    """The order of a round, of which each begins with another way."""
    first = number % len(all_ways)
    return [*all_ways[first:], *all_ways[:first]]


def quartiles(values: Sequence[float]) -> list[float]:
    return quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3


def python(program: str, *arguments: object) -> list[str]:
    """The command of another program of this package."""
    return [sys.executable, str(BENCH), program, *map(str, arguments)]


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


def first_line(command: Sequence[str | Path]) -> str:
    """Of what the command prints; "" without the command."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:
    """What the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1] for line in cpuinfo.splitlines() if "model name" in line]
    versions = {}
    for package in ("shmbridge", "numpy", "onnxruntime", *packages):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    busy, since = busy_seconds(), time.monotonic()
    time.sleep(1)
    load = (busy_seconds() - busy) / (time.monotonic() - since)
    commit = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": first_line(commit),
        "cpu": names[0].strip() if names else platform.machine(),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in cpuinfo,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "compiler": first_line(["cc", "--version"]),
        "clang": first_line(["clang-22", "--version"]),
        "load": load,
        **versions,
    }

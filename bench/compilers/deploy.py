"""One policy at every URL, for one plug-in of an unmodified compiler: only $SHMBRIDGE_URL differs.

    python bench deploy [--rounds N] [--json FILE]

clang-22 -Oz compiles zstd, in one file, with the plug-in of examples/llvm/inliner:

plain   no plug-in
shm     `shmbridge serve --onnx` in another process
shm_py  `shmbridge serve --python` in another process
relay   the same, served by gRPC; `shmbridge relay` joins the compiler's shared memory to it
grpc    the same gRPC from the compiler's own process, by Python in it
pipe    the same through named pipes, with FlatBuffers
onnx    ONNX Runtime in the compiler
aot     the model compiled by `shmbridge compile`, in the compiler
python  the policy itself, a Python function, in the compiler

A round compiles with each; ratios are taken within a round. First, each way's decisions are recorded
and compared one by one. question_times.c times each question. Needs clang-22, llvm-22-dev, cmake, a
C++ compiler and `pip install '.[bench]'`. A way that cannot run here is skipped with the reason.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from llvm_inliner import INLINER, build_plugin, text_bytes
from program import SHMBRIDGE, cpu_of, cpu_used, options, report, started, turns
from run import machine
from sources import fetch_zstd

from shmbridge.logs import TrainingLog

VERSION = 22  # of clang


@dataclass
class Case:
    """A policy and the compilation that asks it. The output's name follows each command."""

    plain: list[str]
    asking: list[str]
    model: Path  # ONNX


def inliner(folder: Path) -> Case:
    """LLVM's inliner, for zstd."""
    model = folder / "inline.onnx"
    subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
    plain = [f"clang-{VERSION}", "-Oz", "-c", str(fetch_zstd(folder))]
    plugin = f"-fpass-plugin={build_plugin(VERSION, folder / 'build')}"
    return Case([*plain, "-o"], [*plain, plugin, "-o"], model)


@dataclass
class Way:
    """One URL of the model; "" is the plain compiler."""

    name: str
    url: str
    case: Case
    folder: Path
    hosts: list[int] = field(default_factory=list)  # process ids
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # of the compilers
    host_cpu: list[float] = field(default_factory=list)
    questions: list[dict[str, float]] = field(default_factory=list)  # us, a round each
    decisions: list[Any] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.folder / f"{self.name}.o"

    def compile(self) -> None:
        """Compiles once, and keeps the times."""
        file = self.folder / f"{self.name}.times"
        timer = {"LD_PRELOAD": str(self.folder / "question_times.so"), "QUESTION_TIMES": str(file)}
        before, host_before = cpu_used(resource.RUSAGE_CHILDREN), sum(map(cpu_of, self.hosts))
        start = time.perf_counter()
        self.run(timer)
        self.seconds.append(time.perf_counter() - start)
        self.cpu.append(cpu_used(resource.RUSAGE_CHILDREN) - before)
        self.host_cpu.append(sum(map(cpu_of, self.hosts)) - host_before)
        if file.exists():
            us = np.diff(np.fromfile(file, np.int64).reshape(-1, 2))[:, 0] / 1000
            figures = {"mean": us.mean(), "p50": np.median(us), "p99": np.quantile(us, 0.99)}
            self.questions.append({name: float(value) for name, value in figures.items()})
            file.unlink()

    def decide(self) -> None:
        """Compiles once, through a recorder, and keeps the decisions."""
        log, tap = self.folder / f"{self.name}.log", f"shm://deploy-{os.getpid()}-tap"
        with running(INLINER, "record", self.url, tap, str(log)):
            self.run({"SHMBRIDGE_URL": tap})
        self.decisions = [
            [value.tobytes() for value in (*record.features.values(), *record.advice.values())]
            for record in TrainingLog(log)
        ]

    def run(self, more: dict[str, str]) -> None:
        env = {k: v for k, v in os.environ.items() if k != "SHMBRIDGE_URL"}
        env |= {"SHMBRIDGE_URL": self.url, "PYTHONPATH": str(INLINER)} if self.url else {}
        env |= more
        command = self.case.asking if self.url else self.case.plain
        done = subprocess.run([*command, self.output], env=env, capture_output=True, text=True)
        if done.returncode or done.stderr:  # a warning: some questions used the compiler's advice
            raise RuntimeError(f"{self.name}: {done.stderr}")


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[int]:
    """Runs `shmbridge ...` in a folder during the block; it is ready when it has printed something.
    Its process id."""
    with started(SHMBRIDGE, *arguments, cwd=folder) as (process, _):
        yield process.pid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build_question_times(folder: Path) -> Path:
    source = str(Path(__file__).with_name("question_times.c"))
    flags = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC"]
    include = subprocess.check_output([SHMBRIDGE, "config", "--cflags"], text=True).split()
    shared = folder / "question_times.so"
    subprocess.run(["cc", *flags, *include, source, "-o", shared, "-ldl"], check=True)
    return shared


def start(folder: Path, case: Case, stack: ExitStack) -> list[Way]:
    """Plain, and every way whose model is available."""
    os.environ["SHMBRIDGE_PYTHON"] = str(folder / "embedded-python")
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # where the compiler looks for ONNX Runtime
    library, name = folder / "model.so", f"deploy-{os.getpid()}"
    remote, pipe = f"grpc://127.0.0.1:{free_port()}", f"pipe://{folder}/pipe?serdes=flatbuffers"
    model, function = ["--onnx", str(case.model)], "policy:advise"
    embed = ["embed", "-o", os.environ["SHMBRIDGE_PYTHON"]]
    beginnings = {
        "shm": (f"shm://{name}", [["serve", name, *model]]),
        "shm_py": (f"shm://{name}-py", [["serve", f"{name}-py", "--python", function]]),
        "pipe": (pipe, [["serve", pipe, *model]]),
        "relay": (f"shm://{name}-relay", [["serve", remote, *model], ["relay", f"shm://{name}-relay", remote]]),
        "grpc": (remote, [embed]),  # the relay's host
        "onnx": (f"onnx://{case.model}", []),
        "aot": (f"aot://{library}", [["compile", str(case.model), "-o", str(library)]]),
        "python": (f"python://{function}", [embed]),
    }  # fmt: skip
    build_question_times(folder)
    ways = [Way("plain", "", case, folder)]
    for way, (url, commands) in beginnings.items():
        hosts = []
        try:
            for command in commands:
                if command[0] in ("compile", "embed"):
                    subprocess.run([SHMBRIDGE, *command], check=True)
                else:
                    hosts.append(stack.enter_context(running(INLINER, *command)))
            ways.append(Way(way, url, case, folder, hosts))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out: {way}: {error}", file=sys.stderr)
    return ways


def measure(folder: Path, case: Case, rounds: int) -> list[Way]:
    with ExitStack() as stack:
        ways = start(folder, case, stack)
        for way in ways[1:]:
            try:
                way.decide()
            except RuntimeError as error:
                print(f"left out: {error}", file=sys.stderr)
                ways.remove(way)
        for i in range(rounds):
            for way in turns(ways, i):
                way.compile()
    return ways


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
                "question_us": way.questions,
                "us_per_question_over_aot": cost,
                "decisions": len(way.decisions),
                "bytes": text_bytes(VERSION, way.output),
            }
        )
    pairs = [
        {"pair": [one.name, other.name], "identical": one.decisions == other.decisions}
        for one, other in combinations(asked, 2)
    ]
    for pair in pairs:
        if not pair["identical"]:
            print(f"  the decisions of {' and '.join(pair['pair'])} differ")
    objects = {way.output.read_bytes() for way in asked}
    return {
        "decisions": len(aot.decisions),
        "ways": results,
        "pairs": pairs,
        "different_objects": len(objects),
    }


def main() -> None:
    parser = options(__doc__, rounds=5)
    given = parser.parse_args()
    if not (shutil.which(f"clang-{VERSION}") and shutil.which(f"llvm-config-{VERSION}")):
        raise SystemExit(
            f"expected clang-{VERSION} and its headers: apt-get install clang-{VERSION} llvm-{VERSION}-dev"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = figures(measure(folder, inliner(folder), given.rounds))
    found = {"machine": machine(), "rounds": given.rounds, **result}
    report("inline", found, given.json)


if __name__ == "__main__":
    main()

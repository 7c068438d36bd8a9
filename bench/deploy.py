"""One policy at every URL, for one plug-in of an unmodified compiler: only $SHMBRIDGE_URL differs.

    python bench/deploy.py [--policy inline|phases] [--rounds N] [--jobs N] [--source FILE.c]
        [--json FILE]

inline  examples/llvm/inliner in clang-22 -Oz, of zstd in one file
phases  examples/phase_ordering in opt-22, of zopfli's 12 files, a process each

plain   no plug-in; for phases, the passes that the policy chose, in the same order
shm     `shmbridge serve --onnx` in another process
shm_py  `shmbridge serve --python` in another process
relay   the same, served by gRPC; `shmbridge relay` joins the compiler's shared memory to it
grpc    the same gRPC from the compiler's own process, by Python in it
pipe    the same through named pipes, with FlatBuffers
onnx    ONNX Runtime in the compiler
aot     the model compiled by `shmbridge compile`, in the compiler
python  the policy itself, a Python function, in the compiler

A round compiles the program with each, `--jobs` times at once. Ratios are taken within a round.
First, each way's decisions are logged and compared one by one. In the inliner, question_times.c
times each question. Needs clang-22, llvm-22-dev, cmake, a C++ compiler and `pip install
'.[bench]'`. A way that cannot run here is skipped with the reason.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import phase_policy
from llvm_inliner import INLINER, build_plugin, text_bytes
from program import SHMBRIDGE, cpu_of, cpu_used, options, report, started, turns
from run import machine
from sources import fetch_zopfli, fetch_zstd

VERSION = 22  # of clang
PHASES = Path(__file__).parents[1] / "examples" / "phase_ordering"


@dataclass
class Case:
    """A policy and the compilations that ask it. An output's name follows each command."""

    plain: list[list[str]]
    asking: list[list[str]]
    model: Path  # ONNX
    function: str  # the same model in Python, for python://
    path: Path  # its folder
    print: str = ""  # an option that prints the decisions, in the place of "{print}"
    score: Callable[[Any], float] | None = None  # of a decision's features

    def decisions(self, said: str, log: Path) -> list[Any]:
        """The decisions, from the plug-in's log or output."""
        if not self.print:
            return (
                [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
            )
        found = re.findall(r"actions ([\d ]+):", said)
        return [int(action) for line in found for action in line.split()]


def inline(folder: Path, source: Path | None) -> Case:
    """LLVM's inliner."""
    subprocess.run([sys.executable, INLINER / "export.py", folder / "inline.onnx"], check=True)
    sys.path.insert(0, str(INLINER))
    from policy import WEIGHTS, score  # type: ignore[import-not-found]

    class Number(int):
        def item(self) -> int:
            return int(self)

    plain = [f"clang-{VERSION}", "-Oz", "-c", str(source or fetch_zstd(folder)), "-o"]
    plugin = [*plain[:-1], f"-fpass-plugin={build_plugin(VERSION, folder / 'build')}", "-o"]
    return Case([plain], [plugin], folder / "inline.onnx", "policy:advise", INLINER,
                score=lambda features: score({name: Number(features[name][0]) for name in WEIGHTS}))  # fmt: skip


def phases(folder: Path, source: Path | None) -> Case:
    """Phase ordering. plain is added once the policy has chosen."""
    plugin = build_plugin(VERSION, folder / "build", PHASES, "phase-ordering.so")
    actions, model = folder / "actions.txt", folder / "phases.onnx"
    actions.write_text(phase_policy.ACTIONS)
    phase_policy.write(str(model))
    passes = f"-passes=phase-ordering<actions={actions};steps={phase_policy.COUNT}{{print}}>"
    asking = []
    for file in bitcode(
        [source] if source else sorted(fetch_zopfli(folder).parent.glob("*.c")), folder
    ):
        asking.append([f"opt-{VERSION}", f"-load-pass-plugin={plugin}", passes, str(file), "-o"])
    return Case([], asking, model, "phase_policy:advise", Path(__file__).parent, print=";print")


def bitcode(sources: Sequence[Path], folder: Path) -> list[Path]:
    """The bitcode before clang -Oz's first pass."""
    made = [folder / f"{source.stem}.bc" for source in sources]
    flags = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c"]
    for source, to in zip(sources, made, strict=True):
        subprocess.run([f"clang-{VERSION}", *flags, source, "-o", to], check=True)
    return made


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
    def outputs(self) -> list[Path]:
        return [self.folder / f"{self.name}{i}.o" for i in range(len(self.case.asking))]

    def compile(self, jobs: int) -> None:
        """Compiles the whole case, `jobs` times at once, and keeps the times."""
        file = self.folder / f"{self.name}.times"
        timer = self.folder / "question_times.so"
        env = {"LD_PRELOAD": str(timer), "QUESTION_TIMES": str(file)} if timer.exists() else {}
        before, host_before = cpu_used(resource.RUSAGE_CHILDREN), sum(map(cpu_of, self.hosts))
        start = time.perf_counter()
        self._run(jobs, env)
        self.seconds.append(time.perf_counter() - start)
        self.cpu.append(cpu_used(resource.RUSAGE_CHILDREN) - before)
        self.host_cpu.append(sum(map(cpu_of, self.hosts)) - host_before)
        if file.exists():
            us = np.diff(np.fromfile(file, np.int64).reshape(-1, 2))[:, 0] / 1000
            figures = {"mean": us.mean(), "p50": np.median(us), "p99": np.quantile(us, 0.99)}
            self.questions.append({name: float(value) for name, value in figures.items()})
            file.unlink()

    def decide(self) -> None:
        """Compiles once and keeps the decisions."""
        file = self.folder / f"{self.name}.log"
        said = self._run(1, {"SHMBRIDGE_INLINER_LOG": str(file)}, self.case.print)
        self.decisions = self.case.decisions(said, file)

    def _run(self, jobs: int, more: dict[str, str], option: str = "") -> str:
        env = {k: v for k, v in os.environ.items() if k != "SHMBRIDGE_URL"} | more
        env |= {"SHMBRIDGE_URL": self.url, "PYTHONPATH": str(self.case.path)} if self.url else {}
        commands = self.case.asking if self.url else self.case.plain
        said = ""
        for command, out in zip(commands, self.outputs, strict=True):
            words = [w.replace("{print}", option) for w in command]
            running = [
                subprocess.Popen([*words, to], env=env, stderr=subprocess.PIPE, text=True)
                for to in [str(out), *(f"{out}.{job}" for job in range(1, jobs))]
            ]
            for process in running:
                said += process.communicate()[1]
                # a warning: some questions used the compiler's own advice
                if process.returncode or "warning" in said or (said and not self.case.print):
                    raise RuntimeError(f"{self.name}: {said}")
        return said


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
    os.environ["SHMBRIDGE_PYTHON_LIBRARY"] = str(folder / "libshmbridge-python.so")
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # where the compiler looks for ONNX Runtime
    library, name = folder / "model.so", f"deploy-{os.getpid()}"
    remote, pipe = f"grpc://127.0.0.1:{free_port()}", f"pipe://{folder}/pipe?serdes=flatbuffers"
    model = ["--onnx", str(case.model)]
    embed = ["embed", "-o", os.environ["SHMBRIDGE_PYTHON_LIBRARY"]]
    beginnings = {
        "shm": (f"shm://{name}", [["serve", name, *model]]),
        "shm_py": (f"shm://{name}-py", [["serve", f"{name}-py", "--python", case.function]]),
        "pipe": (pipe, [["serve", pipe, *model]]),
        "relay": (f"shm://{name}-relay", [["serve", remote, *model], ["relay", f"shm://{name}-relay", remote]]),
        "grpc": (remote, [embed]),  # the relay's host
        "onnx": (f"onnx://{case.model}", []),
        "aot": (f"aot://{library}", [["compile", str(case.model), "-o", str(library)]]),
        "python": (f"python://{case.function}", [embed]),
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
                    hosts.append(stack.enter_context(running(case.path, *command)))
            ways.append(Way(way, url, case, folder, hosts))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out: {way}: {error}", file=sys.stderr)
    return ways


def as_chosen(case: Case, way: Way) -> None:
    """Makes plain run the passes of this way."""
    lines, decided = phase_policy.ACTIONS.splitlines(), list(way.decisions)
    for command in case.asking:
        chosen, decided = decided[: phase_policy.COUNT], decided[phase_policy.COUNT :]
        passes = ",".join(lines[action] for action in chosen)
        case.plain.append([command[0], f"-passes={passes}", *command[3:]])


def measure(folder: Path, case: Case, rounds: int, jobs: int) -> list[Way]:
    with ExitStack() as stack:
        ways = start(folder, case, stack)
        for way in ways[1:]:
            try:
                way.decide()
            except RuntimeError as error:
                print(f"left out: {error}", file=sys.stderr)
                ways.remove(way)
        if not case.plain:
            as_chosen(case, ways[1])
        for i in range(rounds):
            for way in turns(ways, i):
                way.compile(jobs)
    return ways


def differences(one: Way, other: Way) -> dict[str, Any]:
    """The differences between two ways' decisions about the same questions, and how close the
    policy's scores are to 0 there."""
    found: list[float] = []
    score = one.case.score
    for mine, its in zip(one.decisions, other.decisions, strict=False):
        if score is None or mine["features"] != its["features"]:
            break  # after a different decision the questions differ
        if mine["advice"] != its["advice"]:
            found.append(score(mine["features"]))
    same = one.decisions == other.decisions
    return {"pair": [one.name, other.name], "identical": same, "scores_where_they_differ": found}


def figures(ways: list[Way], jobs: int) -> dict[str, Any]:
    """The JSON; prints how the decisions differ."""
    plain, asked = ways[0], ways[1:]
    aot = next((way for way in asked if way.name == "aot"), asked[-1])
    count = len(aot.decisions)
    results = []
    for way in ways:
        ratios = [mine / its for mine, its in zip(way.seconds, plain.seconds, strict=True)]
        cost = [1e6 / count * (s - its) for s, its in zip(way.seconds, aot.seconds, strict=True)]
        if way.questions:
            both = zip(way.questions, aot.questions, strict=True)
            cost = [mine["mean"] - its["mean"] for mine, its in both]
        size = sum(
            text_bytes(VERSION, out) if plain.case.score else out.stat().st_size
            for out in way.outputs
        )
        results.append(
            {
                "way": way.name,
                "seconds": way.seconds,
                "cpu_seconds": way.cpu,
                "host_cpu_seconds": way.host_cpu,
                "ratio_to_plain": median(ratios),
                "question_us": way.questions,
                "us_per_question_over_aot": cost,
                "decisions": len(way.decisions),
                "bytes": size,
            }
        )
    pairs = [differences(one, other) for i, one in enumerate(asked) for other in asked[i + 1 :]]
    for pair in pairs:
        if not pair["identical"]:
            print(
                f"  {' and '.join(pair['pair'])} differ; the policy's scores there: {pair['scores_where_they_differ']}"
            )
    objects = {tuple(out.read_bytes() for out in way.outputs) for way in asked}
    return {
        "compilations": len(plain.case.plain),
        "jobs": jobs,
        "decisions": count,
        "ways": results,
        "pairs": pairs,
        "different_objects": len(objects),
    }


def main() -> None:
    parser = options(__doc__, rounds=5)
    parser.add_argument("--policy", choices=("inline", "phases"), default="inline")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at once")
    parser.add_argument("--source", type=Path, help="the C file to compile (default: from PyPI)")
    given = parser.parse_args()
    if not (shutil.which(f"clang-{VERSION}") and shutil.which(f"llvm-config-{VERSION}")):
        raise SystemExit(
            f"expected clang-{VERSION} and its headers: apt-get install clang-{VERSION} llvm-{VERSION}-dev"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = {"inline": inline, "phases": phases}[given.policy](folder, given.source)
        result = figures(measure(folder, case, given.rounds, given.jobs), given.jobs)
    found = {"machine": machine(), "rounds": given.rounds, **result}
    report(given.policy, found, given.json)


if __name__ == "__main__":
    main()

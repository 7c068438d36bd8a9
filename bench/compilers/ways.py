"""The URLs of a policy, and the compilers that ask there, for deploy.py."""

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import numpy as np

from bench.builds import compiled
from bench.compilers.cases import Case
from bench.compilers.plugins import EXAMPLES
from bench.program import SHMBRIDGE, cpu_of, cpu_used, started
from shmbridge.logs import TrainingLog


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
    memory: int = 0  # bytes of the largest compiler
    questions: list[dict[str, float]] = field(default_factory=list)  # us, a round each
    decisions: list[Any] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.folder / f"{self.name}.o"

    def compile(self, jobs: int = 1) -> None:
        """Compiles each source once, so many at once, and keeps the times."""
        file = self.folder / f"{self.name}.times"
        timer = {"LD_PRELOAD": str(self.folder / "question_times.so"), "QUESTION_TIMES": str(file)}
        before, host_before = cpu_used(resource.RUSAGE_CHILDREN), sum(map(cpu_of, self.hosts))
        start = time.perf_counter()
        self.run(timer, jobs)
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
        with running(self.case.place, "record", self.url, tap, str(log)):
            self.run({"SHMBRIDGE_URL": tap})
        self.decisions = [
            [value.tobytes() for value in (*record.features.values(), *record.advice.values())]
            for record in TrainingLog(log)
        ]

    def asking(self, more: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command without the files, and its environment."""
        env = {k: v for k, v in os.environ.items() if k != "SHMBRIDGE_URL"}
        env |= {"SHMBRIDGE_URL": self.url, "PYTHONPATH": str(self.case.place)} if self.url else {}
        if self.name == "pipe_bitstream":  # it cannot carry lists: it gets the other features
            env["REGALLOC_WITHOUT_LISTS"] = "1"
        if self.name == "grpc_cpp":
            env["LD_PRELOAD"] = str(self.folder / "grpc_runner.so")
        command = self.case.asking if self.url else self.case.plain
        loads = ":".join(each["LD_PRELOAD"] for each in (env, more) if "LD_PRELOAD" in each)
        env |= more | ({"LD_PRELOAD": loads} if loads else {})
        return self.case.original if self.name == "original" else command, env

    def run(self, more: dict[str, str], jobs: int = 1) -> None:
        command, env = self.asking(more)
        if self.case.threads:
            command, jobs = [*command, f"-Wl,--thinlto-jobs={jobs}"], 1

        def one(place: int) -> None:
            to = self.output.with_suffix(f".{place}.o" if place else ".o")
            words = [*command, self.case.sources[place], *(["-o"] * (self.name != "original")), to]
            process = subprocess.Popen(words, env=env, stdout=DEVNULL, stderr=PIPE, text=True)
            assert process.stderr
            said = process.stderr.read()
            _, process.returncode, used = os.wait4(process.pid, 0)
            if process.returncode or said:  # a warning: some questions had no answer
                raise RuntimeError(f"{self.name}: {said}")
            self.memory = max(self.memory, used.ru_maxrss * 1024)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, range(len(self.case.sources))))


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


def build_grpc_runner(folder: Path) -> Path:
    """grpc:// in C++, for compilers to preload."""
    schemas, plugin = EXAMPLES.parent / "schemas", shutil.which("grpc_cpp_plugin")
    if not plugin:
        raise RuntimeError("expected Debian's libgrpc++-dev and protobuf-compiler-grpc")
    made = [f"--cpp_out={folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"]
    protoc = Path(plugin).with_name("protoc")
    subprocess.run([protoc, f"-I{schemas}", *made, "bridge.proto"], check=True)
    its = subprocess.check_output(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"])
    flags = ["-fPIC", "-shared", f"-I{folder}", *map(str, folder.glob("bridge.*.cc"))]
    source = EXAMPLES / "cpp/grpc_runner.cpp"
    return compiled(source, folder / "grpc_runner.so", *flags, *its.decode().split())


def start(folder: Path, case: Case, stack: ExitStack) -> list[Way]:
    """Plain, and every way whose model is available."""
    os.environ["SHMBRIDGE_PYTHON"] = str(folder / "embedded-python")
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # where the compiler looks for ONNX Runtime
    name = f"deploy-{os.getpid()}"
    remote, pipe = f"grpc://127.0.0.1:{free_port()}", f"pipe://{folder}/pipe"
    model = ["--onnx", str(case.models[""])] if "" in case.models else ["--python", case.function]
    embed = ["embed", "-o", os.environ["SHMBRIDGE_PYTHON"]]
    libraries = [["compile", str(f), "-o", str(f.with_suffix(".so"))] for f in case.models.values()]
    beginnings = {
        "original": ("", []),
        "shm": (f"shm://{name}", [["serve", name, *model]]),
        "shm_py": (f"shm://{name}-py", [["serve", f"{name}-py", "--python", case.function]]),
        "relay": (f"shm://{name}-relay", [["serve", remote, *model], ["relay", f"shm://{name}-relay", remote]]),
        "grpc": (remote, [embed, *([["serve", remote, *model]] * ("relay" not in case.ways))]),
        "grpc_cpp": (remote, [["serve", remote, *model]] * ("grpc" not in case.ways.split())),
        "onnx": (case.url("onnx", ".onnx"), []),
        "aot": (case.url("aot", ".so"), libraries),
        "python": (f"python://{case.function}?path={case.place}", [embed]),
    }  # fmt: skip
    for way, serdes in (("pipe", "flatbuffers"), ("pipe_bitstream", "bitstream"), ("pipe_json", "json")):  # fmt: skip
        url = f"{pipe}-{serdes}?serdes={serdes}"
        # of JSON's float64, which ONNX Runtime does not take for float32
        its = ["--python", case.function] if serdes == "json" else model
        beginnings[way] = (url, [["serve", url, *its]])
    build_question_times(folder)
    ways = [Way("plain", "", case, folder)]
    for way in case.ways.split():
        url, commands = beginnings[way]
        hosts: list[int] = []
        try:
            if way == "grpc_cpp":
                build_grpc_runner(folder)
            for command in commands:
                if command[0] in ("compile", "embed"):
                    subprocess.run([SHMBRIDGE, *command], check=True)
                else:
                    hosts.append(stack.enter_context(running(case.place, *command)))
            ways.append(Way(way, url, case, folder, hosts))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out: {way}: {error}", file=sys.stderr)
    return ways

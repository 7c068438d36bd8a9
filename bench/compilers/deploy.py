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

from __future__ import annotations

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import numpy as np
from llvm_inliner import EXAMPLES, INLINER, build_plugin, text_bytes
from program import SHMBRIDGE, compiled, cpu_of, cpu_used, options, report, started, turns
from run import machine
from sources import fetch_lua, fetch_sqlite, fetch_zstd

from shmbridge.logs import TrainingLog

VERSION = 22  # of clang


@dataclass
class Case:
    """A policy and the compilations that ask it: commands, which the source and the output follow."""

    plain: list[str]
    asking: list[str]
    sources: list[Path]
    ways: str
    models: dict[str, Path]  # ONNX, by agent; "": the only one
    function: str = ""  # the same in Python
    place: Path = INLINER  # of the function
    original: list[str] = field(default_factory=list)
    questions: int = 0
    threads: bool = False  # one compiler with so many threads, instead of so many compilers

    def url(self, scheme: str, suffix: str) -> str:
        """Of the models in the compiler's process."""
        files = {name: file.with_suffix(suffix) for name, file in self.models.items()}
        if "" in files:
            return f"{scheme}://{files['']}"
        return f"{scheme}://?" + "&".join(f"agent.{name}={file}" for name, file in files.items())


def inliner(folder: Path, source: Path | None = None) -> dict[str, Case]:
    """LLVM's inliner, for zstd."""
    model = folder / "inline.onnx"
    subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
    plain = [f"clang-{VERSION}", "-Oz", "-c"]
    plugin = f"-fpass-plugin={build_plugin(VERSION, folder / 'build')}"
    ways = "shm shm_py pipe relay grpc grpc_cpp onnx aot python"
    sources = [source or fetch_zstd(folder)]
    return {"zstd": Case(plain, [*plain, plugin], sources, ways, {"": model}, "policy:advise")}


def linker(folder: Path) -> dict[str, Case]:
    """The same in a linker, for Lua."""
    lua, thin, objects = lua_files(folder), folder / "thin", folder / "objects.txt"
    thin.mkdir()
    clang = [f"clang-{VERSION}", "-Oz", "-w", "-flto=thin"]
    subprocess.run([*clang, "-fPIC", "-c", *lua], check=True, cwd=thin)
    objects.write_text("\n".join(map(str, sorted(thin.glob("*.o")))))
    case = inliner(folder, Path(f"@{objects}"))["zstd"]
    plain = [*clang, "-fuse-ld=lld", "-shared"]
    plugin = f"-Wl,--load-pass-plugin={case.asking[-1].partition('=')[2]}"
    ways = "shm_py grpc_cpp onnx aot"
    return {"Lua": replace(case, plain=plain, asking=[*plain, plugin], ways=ways, threads=True)}


def lua_files(folder: Path) -> list[Path]:
    """Its library's files."""
    lua = fetch_lua(folder).parent
    others = ("onelua.c", "lua.c", "luac.c", "ltests.c")
    return sorted(each for each in lua.glob("*.c") if each.name not in others)


def allocation(folder: Path, sources: list[Path] | None = None) -> dict[str, Case]:
    """Registers for Lua, by the textbook's allocator."""
    place, plain = EXAMPLES / "regalloc", [f"clang-{VERSION}", "-O2", "-w", "-c"]
    code = f"from run import *; save_onnx(textbook(), Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=place)
    plugin = f"-fpass-plugin={build_plugin(VERSION, folder / 'build', place)}"
    models = {name: folder / f"{name}.onnx" for name in ("task", "colour", "split")}
    ways = f"shm_py {'grpc' if sources else 'pipe pipe_bitstream pipe_json'} grpc_cpp onnx aot"
    sources = sources or [fetch_lua(folder)]
    case = Case(plain, [*plain, plugin], sources, ways, models, "policy:start", place)
    env = {**os.environ, "SHMBRIDGE_URL": case.url("onnx", ".onnx")}
    for source in sources:
        words = [*case.asking, "-Rpass-analysis=shmbridge-regalloc", source, "-o", folder / "a.o"]
        said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stderr
        case.questions += sum(map(int, re.findall(r": (\d+) questions", said)))
    return {"Lua": case}


def each_file(folder: Path) -> dict[str, Case]:
    """The same, file by file."""
    return allocation(folder, lua_files(folder)[::4])


def poset_rl(folder: Path) -> tuple[list[str], list[str]]:
    """The commands of POSET-RL, of opt with the plug-in and of the original, and its trained
    network, folder/poset_rl.onnx."""
    place, model = EXAMPLES / "phase_ordering", folder / "poset_rl.onnx"
    shutil.copy(EXAMPLES.parent / "docs/results/poset_rl.onnx", model)
    plugin = build_plugin(VERSION, folder / "build", place)
    vocabulary, kernels = folder / "ir2vec.json", (EXAMPLES / "regalloc/kernels").glob("*.c")
    train = [sys.executable, EXAMPLES / "vocabulary.py", "ir", vocabulary, *sorted(kernels)]
    subprocess.run(train, check=True)
    code = f"from poset_rl import *; print(*asking({str(vocabulary)!r}, plugin={str(plugin)!r}))"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=place, text=True)
    original = [sys.executable, place / "poset_rl.py", "original", model, vocabulary]
    return said.split(), [*map(str, original)]


def bitcode(source: Path, to: Path) -> Path:
    """LLVM's IR without any pass, for opt."""
    clang = f"clang-{VERSION} -w -Oz -Xclang -disable-llvm-passes -emit-llvm -S".split()
    subprocess.run([*clang, source, "-o", to], check=True)
    return to


def phases(folder: Path) -> dict[str, Case]:
    """POSET-RL's passes for four programs."""
    asking, original = poset_rl(folder)
    plain, model = [f"opt-{VERSION}", "-Oz"], {"": folder / "poset_rl.onnx"}
    ways, cases = "original shm pipe_bitstream pipe_json grpc onnx aot", {}
    place, network = EXAMPLES / "phase_ordering", folder / "json" / "network.py"
    network.parent.mkdir()
    network.write_text(
        f"import numpy as np, poset_rl\nq = poset_rl.Q.read_onnx({str(model[''])!r})\n"
        "def answer(request):\n    x = q.inputs({'ir2vec': np.float32(request['ir2vec'])[None]})\n"
        "    return int(q.outputs(x).argmax())\n"
    )
    lua = fetch_lua(folder)
    programs = {"lstrlib.c": lua.with_name("lstrlib.c"), "Lua": lua}
    programs |= {"zstd": fetch_zstd(folder), "SQLite": fetch_sqlite(folder)}
    for name, source in programs.items():
        its, answer = [bitcode(source, folder / f"{name}.ll")], f"{network}:answer"
        cases[name] = Case(plain, asking, its, ways, model, answer, place, original, 15)
    return cases


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

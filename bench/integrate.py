"""The cost of integrating each runner: lines of code, and how much a compiler like clang grows, on
disk and in memory.

    python bench/integrate.py [--only lines,size] [--source FILE.c] [--rounds N] [--json FILE]

lines   one small compiler in C, C++ and Python asks over shm://, its answers are compared with the
        model's, and the added lines are counted. Other runners need another model, not other lines
size    clang -cc1 with all of LLVM's targets, linked statically: plain, with shmbridge and the
        inliner plug-in, with gRPC. Then each compiles the program, with the model in each place,
        while its memory is sampled

lines needs a C++ compiler. size needs `pip install 'shmbridge[bench,compile]'`, clang-22, lld-22,
llvm-22-dev, libclang-22-dev, libpolly-22-dev, libzstd-dev and, for gRPC, libgrpc++-dev and
protobuf-compiler-grpc. What cannot run here is skipped with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from llvm_inliner import INLINER
from program import ROOT, SHMBRIDGE, compiled, options, report
from run import machine
from sources import fetch_zstd

from shmbridge import _config
from shmbridge._runner import urls

HERE = Path(__file__).parent
LLVM = Path("/usr/lib/llvm-22")
EXPECTED = "11110000"  # of the model below; the compilers' own heuristic says 11111111


# ---- Lines -----------------------------------------------------------------------------------------------------------

HOST = """
import shmbridge
with shmbridge.Host("{url}") as host:
    host.serve(lambda request: int(request["features"].sum() < 8))
"""
FUNCTION = """
def advise(request):
    return int(request["features"].sum() < 8)
"""
EMBED = "shmbridge embed"
# By runner: the model's code, and commands to run once.
MODELS: dict[str, tuple[str, list[str]]] = {
    "shm": (HOST, []),
    "pipe": (HOST, []),
    "grpc": (HOST, [EMBED]),
    "python": (FUNCTION, [EMBED]),
    "onnx": ("", []),
    "aot": ("", ["shmbridge compile m.onnx -o m.so"]),
    "tflite": ("", []),
}
PYTHON_ASKS = """
import numpy, sys
import shmbridge
features = numpy.zeros(16, numpy.float32)
with shmbridge.connect() as runner:
    for i in range(8):
        features[i] = i
        sys.stdout.write(str(int(runner.evaluate({"features": features}))))
"""


def added(file: Path) -> int:
    """Lines of code inside #ifdef ASK."""
    parts = re.findall(r"#ifdef ASK\n(.*?)#endif", file.read_text(), re.DOTALL)
    return sum(bool(line.strip()) for part in parts for line in part.splitlines())


def count(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())


@contextmanager
def running(*command: str | Path, **env: str) -> Iterator[None]:
    process = subprocess.Popen(
        list(map(str, command)), env=os.environ | env, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def listening(address: str) -> None:
    """Waits until a server listens at HOST:PORT. TimeoutError."""
    host, port = address.split(":")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no server at {address}")


def shell(command: str, folder: Path) -> None:
    done = subprocess.run(
        shlex.split(command.replace("shmbridge ", f"{SHMBRIDGE} ", 1)),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")


def lines(folder: Path, given: argparse.Namespace) -> Any:
    """lines to add to a compiler and a model, for each runner, and commands to run once"""
    asks = {
        end: compiled(HERE / f"integrate_ask.{end}", folder / end, "-DASK") for end in ("c", "cpp")
    }
    url = f"shm://integrate-{os.getpid()}"
    env = os.environ | {"SHMBRIDGE_URL": f"{url}?connect_timeout=30"}
    for program in ([asks["c"]], [asks["cpp"]], [sys.executable, "-c", PYTHON_ASKS]):
        with running(sys.executable, "-c", HOST.format(url=url)):
            said = subprocess.check_output(program, env=env, text=True, cwd=folder, timeout=60)
        if said != EXPECTED:
            raise RuntimeError(f"{program[0]}: expected {EXPECTED}, found {said}")
    added_lines = {end: added(HERE / f"integrate_ask.{end}") for end in asks}
    rows = [
        {"runner": name, **added_lines, "python": 3, "model": count(code), "commands": commands}
        for name, (code, commands) in MODELS.items()
    ]
    plugin = (INLINER / "inliner.cpp").read_text()
    talks = sum(
        "shmb_" in line and not line.lstrip().startswith("//") for line in plugin.splitlines()
    )
    return {"rows": rows, "plugin": {"talks": talks, "lines": count(plugin)}}


# ---- Size ------------------------------------------------------------------------------------------------------------


class Tools:
    """The same compiler, three times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

        def config(*asked: str) -> list[str]:
            command = [LLVM / "bin/llvm-config", "--link-static", *asked]
            return subprocess.check_output(command, text=True).split()

        self.flags = [*config("--cxxflags"), "-fno-rtti", "-O2"]
        left_out = re.compile(r"libclang-cpp|Tidy|libclangd|libclang\.a")
        found = (LLVM / "lib").glob("libclang*.a")
        clang = [str(file) for file in found if not left_out.search(file.name)]
        libraries = ["-Wl,--start-group", *clang, *config("--libfiles", "all"), "-Wl,--end-group"]
        self.link = ["-Wl,--gc-sections", *libraries, *config("--system-libs")]
        self.link += ["-lpthread", "-ldl", "-lrt"]

    def compile(self, source: Path, *flags: str) -> str:
        out = self.folder / f"{source.name}{len(list(self.folder.glob('*.o')))}.o"
        subprocess.run(["clang++-22", *self.flags, *flags, "-c", source, "-o", out], check=True)
        return str(out)

    def program(self, name: str, *parts: str) -> Path:
        out = self.folder / name
        subprocess.run(["clang++-22", "-fuse-ld=lld", *parts, *self.link, "-o", out], check=True)
        return out

    def plain(self) -> Path:
        return self.program("plain", self.compile(HERE / "integrate_compiler.cpp"))

    def shmbridge(self) -> Path:
        include = f"-I{_config.prefix()}/include"
        hook = self.compile(INLINER / "inliner.cpp", include)
        archive = str(_config.prefix() / "lib" / "libshmbridge.a")
        compiler = self.compile(HERE / "integrate_compiler.cpp", "-DWITH_SHMBRIDGE")
        return self.program("shmbridge", compiler, hook, archive)

    def grpc(self) -> Path:
        plugin = shutil.which("grpc_cpp_plugin")
        if not plugin:
            raise RuntimeError(
                "grpc_cpp_plugin is missing (Debian: libgrpc++-dev, protobuf-compiler-grpc)"
            )
        out = [f"--{kind}_out={self.folder}" for kind in ("cpp", "grpc")]
        out.append(f"--plugin=protoc-gen-grpc={plugin}")
        protoc = Path(plugin).with_name("protoc")  # of the same Protobuf
        subprocess.run([protoc, "-I", ROOT / "schemas", *out, "bridge.proto"], check=True)
        generated = [self.folder / f"bridge.{part}.cc" for part in ("pb", "grpc.pb")]
        flags = ["-frtti", "-ffunction-sections", f"-I{self.folder}"]
        parts = [self.compile(s, *flags) for s in (*generated, HERE / "integrate_grpc.cpp")]
        libraries = ["pkg-config", "--static", "--libs", "grpc++", "protobuf"]
        static = subprocess.check_output(libraries, text=True).split()
        static = ["-Wl,-Bstatic", "-Wl,--start-group", *static, "-Wl,--end-group", "-Wl,-Bdynamic"]
        compiler = self.compile(HERE / "integrate_compiler.cpp", "-DWITH_GRPC")
        return self.program("grpc", compiler, *parts, *static)


def sizes(file: Path) -> dict[str, int]:
    """Bytes of text (with constants), data (with bss), the file, and the file without symbols."""
    text, data, bss = map(
        int, subprocess.check_output(["size", file], text=True).splitlines()[1].split()[:3]
    )
    stripped = file.with_name(f"{file.name}.stripped")
    subprocess.run(["strip", "-o", stripped, file], check=True)
    return {
        "text": text,
        "data": data + bss,
        "file": file.stat().st_size,
        "stripped": stripped.stat().st_size,
    }


FIELDS = {"VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "files", "RssShmem": "shared"}


def memory(command: list[str], env: dict[str, str], folder: Path) -> dict[str, float]:
    """Maximum MiB of a run, sampled every millisecond. RuntimeError: it failed or warned."""
    most = dict.fromkeys(FIELDS.values(), 0)
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=os.environ | env, cwd=folder, stderr=subprocess.PIPE, text=True
    )
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        for field, kib in re.findall(
            r"^(VmHWM|RssAnon|RssFile|RssShmem):\s+(\d+)", status.read_text(), re.MULTILINE
        ):
            most[FIELDS[field]] = max(most[FIELDS[field]], int(kib))
        time.sleep(0.001)
    said = process.stderr.read() if process.stderr else ""
    if process.returncode or "warning: " in said:
        raise RuntimeError(said.strip() or f"exit status {process.returncode}")
    return {name: kib / 1024 for name, kib in most.items()} | {
        "seconds": time.perf_counter() - start
    }


def size(folder: Path, given: argparse.Namespace) -> Any:
    """a statically linked clang -cc1 with all targets: its growth on disk and in memory, compared
    with the plain one"""
    tools, programs, table = Tools(folder), {}, {}
    for name in ("plain", "shmbridge", "grpc"):
        try:
            programs[name] = getattr(tools, name)()
            table[name] = sizes(programs[name])
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name}: left out: {error}")
    source = given.source or fetch_zstd(folder)
    return {
        "size": table,
        "source": source.name,
        "memory": in_use(folder, programs, source, given.rounds),
    }


def in_use(folder: Path, programs: dict[str, Path], source: Path, rounds: int) -> Any:
    asked = ["clang-22", "-###", "-Oz", "-c", str(source), "-o", str(folder / "out.o")]
    words = shlex.split(
        subprocess.run(asked, capture_output=True, text=True, check=True).stderr.splitlines()[-1]
    )[2:]
    model, compiled = folder / "inliner.onnx", folder / "inliner.so"
    subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
    for command in (f"shmbridge compile {model} -o {compiled}", "shmbridge embed"):
        shell(command, folder)
    name = f"integrate-{os.getpid()}"
    hosted = [SHMBRIDGE, "serve", name, "--python", "policy:advise"]
    address = f"127.0.0.1:{20_000 + os.getpid() % 20_000}"
    server = [
        sys.executable,
        "-c",
        f'import shmbridge\nwith shmbridge.Host("grpc://{address}") as h: h.serve(lambda r: 1)',
    ]
    # name: the program, the environment, a host
    ways = {
        "plain": ("plain", {}, ["true"]),
        "never asks": ("shmbridge", {}, ["true"]),
        "no host": (
            "shmbridge",
            {"SHMBRIDGE_URL": "shm://nobody?connect_timeout=0&default_advice=0"},
            ["true"],
        ),
        "shm": ("shmbridge", {"SHMBRIDGE_URL": f"shm://{name}?connect_timeout=30"}, hosted),
        "aot": ("shmbridge", {"SHMBRIDGE_URL": f"aot://{compiled}"}, ["true"]),
        "onnx": ("shmbridge", {"SHMBRIDGE_URL": urls.resolve(f"onnx://{model}")}, ["true"]),
        "python": ("shmbridge", {"SHMBRIDGE_URL": "python://policy:advise"}, ["true"]),
        "gRPC, linked": ("grpc", {"BENCH_GRPC": address}, server),
    }
    library = str(_config.embedding())
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for way, (program, env, host) in list(ways.items()):
            if program not in programs:
                continue
            try:
                env = env | {"PYTHONPATH": str(INLINER), "SHMBRIDGE_PYTHON_LIBRARY": library}
                with running(*host, PYTHONPATH=str(INLINER)):
                    if "BENCH_GRPC" in env:
                        listening(address)
                    rows.setdefault(way, []).append(
                        memory([str(programs[program]), *words], env, source.parent)
                    )
            except (RuntimeError, TimeoutError) as error:
                print(f"{way}: left out: {error}")
                del ways[way]
    return {way: {k: median(run[k] for run in runs) for k in runs[0]} for way, runs in rows.items()}


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--only", default="lines,size")
    parser.add_argument(
        "--source", type=Path, help="a C file that needs no options [default: zstd.c, from PyPI]"
    )
    given = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(), "rounds": given.rounds}
    with tempfile.TemporaryDirectory() as made:
        for part in given.only.split(","):
            results[part] = {"lines": lines, "size": size}[part](Path(made), given)
            report(part, results, given.json)


if __name__ == "__main__":
    main()

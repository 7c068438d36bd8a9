"""Policies, and compilations that ask them, for deploy.py."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.compilers.plugins import EXAMPLES, INLINER, build_plugin
from bench.sources import fetch_source

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
    sources = [source or fetch_source(folder, "zstd")]
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
    lua = fetch_source(folder, "lua").parent
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
    sources = sources or [fetch_source(folder, "lua")]
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
    shutil.copy(place / "poset_rl.onnx", model)
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
    lua = fetch_source(folder, "lua")
    programs = {"lstrlib.c": lua.with_name("lstrlib.c"), "Lua": lua}
    programs |= {"zstd": fetch_source(folder, "zstd"), "SQLite": fetch_source(folder, "sqlite")}
    for name, source in programs.items():
        its, answer = [bitcode(source, folder / f"{name}.ll")], f"{network}:answer"
        cases[name] = Case(plain, asking, its, ways, model, answer, place, original, 15)
    return cases

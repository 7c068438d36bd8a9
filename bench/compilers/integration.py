"""What it takes to put the library into a compiler: lines, bytes, threads, memory.

    python bench integration [--json FILE]

plug-ins  of the examples: lines of code, those among them that use the library, bytes of the built
          file, seconds of the build
by hand   lines of the functions that ask this folder's policy, or POSET-RL's, through a protocol of
          one's own, and of those that do it with the library
compilers clang with the inliner's plug-in: bytes of the files that it loads, threads and memory, by URL
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.compilers.cases import inliner
from bench.compilers.plugins import EXAMPLES, build_plugin
from bench.compilers.ways import start
from bench.pages.results_page import report
from bench.program import BENCH, SHMBRIDGE, machine, options, started
from bench.sources import fetch_source

PLUGINS = ("llvm/inliner", "phase_ordering", "loops", "unroll", "regalloc")
# The library's names, and the methods of its classes by which a pass asks.
USES = re.compile(
    r"shmb|\bRunner\b|\bAgents?\b|next_agent|populate|\bfeature<|evaluate|set_done|add_reward"
    r"|on_error|void reset\(|void step\(|\bAction\b|\bURL\b"
)
COMPILERS, PHASES = BENCH / "compilers", EXAMPLES / "phase_ordering"
# Functions of the compiler's side, then of the model's. A file without functions counts whole.
BY_HAND: dict[str, tuple[dict[Path, str], dict[Path, str]]] = {
    "the library, every URL": ({COMPILERS / "compilation_ask.c": "open_model ask close_model"}, {}),
    "a gRPC service": (
        {
            COMPILERS / "compilation.proto": "",
            COMPILERS / "compilation_grpc.cpp": "open_model exchange ask close_model",
        },
        {COMPILERS / "compilation_hosts.py": "serve_grpc"},
    ),
    "LLVM's pipes": (
        {COMPILERS / "compilation_ask.c": "open_end send_all open_channel ask_channel"},
        {COMPILERS / "compilation_hosts.py": "serve_llvm"},
    ),
    "POSET-RL's own gRPC service": (
        {
            COMPILERS / "phases.proto": "",
            COMPILERS / "phases_grpc.cpp": "open_policy choose close_policy",
        },
        {COMPILERS / "phases_host.py": "serve"},
    ),
    "POSET-RL, a process for each step": ({}, {PHASES / "poset_rl.py": "original"}),
}


def lines(source: Path, functions: str = "") -> list[str]:
    """Without empty lines and comments of a line; of all of it, or of these functions."""
    text = source.read_text()
    for name in functions.split():
        if not re.search(rf"^\w.*\b{name}\(", text, re.MULTILINE):
            raise ValueError(f"expected a function {name} in {source}")
    kept, inside = [], not functions
    for line in text.splitlines():
        if functions and re.match(r"\w", line):
            inside = any(re.search(rf"\b{name}\(.*[{{:]$", line) for name in functions.split())
        if inside and line.strip() and not line.strip().startswith(("//", "/*", "*", "#")):
            kept.append(line)
    return kept


def by_hand() -> list[dict[str, Any]]:
    rows = []
    for name, sides in BY_HAND.items():
        counts = [sum(len(lines(*each)) for each in side.items()) for side in sides]
        rows.append({"name": name, "compiler": counts[0], "model": counts[1]})
    return rows


def ask_poset_rl(folder: Path) -> int:
    """Builds POSET-RL's service, so that what is counted works: the action that it chooses."""
    plugin = Path(shutil.which("grpc_cpp_plugin") or "")
    to = [f"--{language}_out={folder}" for language in ("cpp", "grpc", "python")]
    protoc = [plugin.with_name("protoc"), f"-I{COMPILERS}", f"--plugin=protoc-gen-grpc={plugin}"]
    subprocess.run([*protoc, *to, "phases.proto"], check=True)
    its = subprocess.check_output(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"])
    sources, client = (
        [COMPILERS / "phases_grpc.cpp", *folder.glob("phases.*.cc")],
        folder / "phases",
    )
    flags = [*its.decode().split(), "-o", client]
    subprocess.run(["c++", "-std=c++17", f"-I{folder}", *sources, *flags], check=True)
    host = [sys.executable, COMPILERS / "phases_host.py", f"unix:{folder}/socket"]
    env = os.environ | {"PYTHONPATH": f"{folder}:{PHASES}"}
    with started(*host, PHASES / "poset_rl.onnx", env=env):
        return int(subprocess.check_output([client, f"unix:{folder}/socket"]))


def plugins(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name in PLUGINS:
        sources = [*(EXAMPLES / name).glob("*.cpp"), *(EXAMPLES / name).glob("*.h")]
        code = [line for source in sources for line in lines(source)]
        start = time.monotonic()
        built = build_plugin(22, folder / name, EXAMPLES / name)
        seconds = time.monotonic() - start
        using = sum(bool(USES.search(line)) for line in code)
        size = {"bytes": built.stat().st_size, "seconds": seconds}
        rows.append({"name": name, "lines": len(code), "using": using} | size)
    return rows


def compilers(folder: Path) -> list[dict[str, Any]]:
    """clang, compiling one file of Lua."""
    case = inliner(folder)["zstd"]
    source = fetch_source(folder, "lua").with_name("lvm.c")
    case = replace(case, sources=[source], ways="shm pipe grpc onnx aot python")
    rows, plain = [], set[Path]()
    with ExitStack() as stack:
        for way in start(folder, case, stack):
            log = folder / f"{way.name}.ld"
            words, env = way.asking({"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(log)})
            compiler = subprocess.Popen([*words, source, "-o", way.output], env=env)
            most, end = 1, None
            while not end or not end[0]:
                most = max(most, len(os.listdir(f"/proc/{compiler.pid}/task")))
                time.sleep(0.002)
                end = os.wait4(compiler.pid, os.WNOHANG)
            compiler.returncode = end[1]
            said = "".join(each.read_text() for each in folder.glob(f"{log.name}.*"))
            loaded = {Path(each).resolve() for each in re.findall(r"calling init: (/\S+)", said)}
            plain = plain or loaded
            size = sum(each.stat().st_size for each in loaded - plain if each.exists())
            rows.append(
                {"way": way.name, "bytes": size, "threads": most, "memory": end[2].ru_maxrss * 1024}
            )
    return rows


def main() -> None:
    given = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        assert ask_poset_rl(Path(folder)) >= 0
        found = {"machine": machine(), "rows": plugins(Path(folder)), "by hand": by_hand()}
        found["compilers"] = compilers(Path(folder))
    library = next(Path(SHMBRIDGE).parents[1].glob("lib/python*/*/shmbridge/**/libshmbridge.so*"))
    report("integration", found | {"library": library.stat().st_size}, given.json)


if __name__ == "__main__":
    main()

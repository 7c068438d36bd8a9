"""The cost of a question between the steps of a real compilation, for every way to the model.

    python bench compilation [--only NAMES] [--gaps FILE|US] [--jobs N,...] [--loops N,...]
        [--alternations N] [--questions N] [--json FILE]
    python bench compilation --record

compilation.c replays a real compilation: it computes for as long as the compiler did, then asks
with LLVM's 38 features. Every way has the policy of examples/llvm/inliner.

aot       compiled by `shmbridge compile`, in the compiler
onnx      ONNX Runtime in the compiler
shm       shared memory, a host in C
shm_each  the same, a host for each compiler, as `serve --workers` has
shm_8     one host, 8 questions in flight: after the work of 8 gaps
shm_py    shared memory, `shmbridge serve --python`
shm_py_8  the same, 8 questions in flight
shm_onnx  shared memory, `shmbridge serve --onnx`
llvm      LLVM's interactive channel over pipes, a reader in C
llvm_py   the same, a reader in Python
mlcb      ML-Compiler-Bridge's pipes: our runner, PyPI's compilerinterface
grpc      a gRPC stream over a Unix socket, C++ on both sides
grpc_py   the same, a server in Python

An alternation measures each way once, with the same part of the gaps. --record compiles zstd as
deploy.py does, and writes gaps.txt.gz, the gaps between its questions. See bench/README.md.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.builds import build, build_grpc
from bench.compilers.cases import inliner
from bench.compilers.plugins import INLINER
from bench.compilers.replay import GAPS, PROGRAMS, Way, cell, recorded_gaps
from bench.compilers.ways import build_question_times
from bench.program import SHMBRIDGE, endless_loops, machine, quartiles, started, turns

HERE = Path(__file__).parent
MOST_GAPS = 1500
FIGURES = ("mean", "p50", "p99", "host", "both", "system", "wall")


@dataclass
class Place:
    """What the ways share."""

    folder: Path
    model: Path  # ONNX
    channels: int  # compilers at once
    stack: ExitStack

    def serve(self, *command: object) -> tuple[int, str]:
        """Starts a server: its process, and the line that it printed when it was ready."""
        process, line = self.stack.enter_context(started(*command))
        return process.pid, line


def aot(place: Place, build: Path) -> Way:
    library = place.folder / "model.so"
    subprocess.run([SHMBRIDGE, "compile", place.model, "-o", library], check=True)
    return Way("aot", build / "compilation", f"aot://{library}")


def onnx(place: Place, build: Path) -> Way:
    return Way("onnx", build / "compilation", f"onnx://{place.model}")


def shm(place: Place, build: Path) -> Way:
    server, name = place.serve(build / "compilation_host", "shm", place.channels)
    return Way("shm", build / "compilation", f"shm://{name}", [server])


def shm_each(place: Place, build: Path) -> Way:
    host = [build / "compilation_host", "shm", 1]
    return Way("shm_each", build / "compilation", "shm://{line}", each=host)


def _in_flight(way: Way, name: str) -> Way:
    return Way(name, way.program, f"together:{way.url}", way.servers, together=8)


def shm_8(place: Place, build: Path) -> Way:
    return _in_flight(shm(place, build), "shm_8")


def _serve(name: str, place: Place, build: Path, *model: object) -> Way:
    bridge = f"compilation-{os.getpid()}-{name}"
    server, _ = place.serve(SHMBRIDGE, "serve", bridge, "--channels", place.channels, *model)
    return Way(name, build / "compilation", f"shm://{bridge}", [server])


def shm_py(place: Place, build: Path) -> Way:
    return _serve("shm_py", place, build, "--python", f"{INLINER / 'policy.py'}:advise")


def shm_py_8(place: Place, build: Path) -> Way:
    model = ["--python", f"{INLINER / 'policy.py'}:advise"]
    return _in_flight(_serve("shm_py_8", place, build, *model), "shm_py_8")


def shm_onnx(place: Place, build: Path) -> Way:
    return _serve("shm_onnx", place, build, "--onnx", place.model)


def llvm(place: Place, build: Path) -> Way:
    reader = [build / "compilation_host", "llvm", "{base}"]
    return Way("llvm", build / "compilation", "llvm:{base}", each=reader)


def llvm_py(place: Place, build: Path) -> Way:
    reader = [sys.executable, HERE / "compilation_hosts.py", "llvm", "{base}"]
    return Way("llvm_py", build / "compilation", "llvm:{base}", each=reader)


def mlcb(place: Place, build: Path) -> Way:
    import compilerinterface  # noqa: F401

    host = [sys.executable, HERE / "compilation_hosts.py", "mlcb", "{base}", *feature_names()]
    return Way("mlcb", build / "compilation", "pipe://{base}", each=host)


def grpc(place: Place, build: Path) -> Way:
    folder = with_grpc(place)
    address = f"unix:{folder}/socket"
    server, _ = place.serve(folder / "compilation_grpc_host", address)
    return Way("grpc", folder / "compilation_grpc", address, [server])


def grpc_py(place: Place, build: Path) -> Way:
    folder = with_grpc(place)
    address = f"unix:{folder}/socket_py"
    program = HERE / "compilation_hosts.py"
    server, _ = place.serve(sys.executable, program, "grpc", address, *feature_names())
    return Way("grpc_py", folder / "compilation_grpc", address, [server])


def feature_names() -> list[str]:
    """LLVM's features for the inliner, in its order."""
    text = (HERE / "compilation.h").read_text().partition("feature_names")[2]
    return re.findall(r'"(\w+)"', text.partition("}")[0])


def with_grpc(place: Place) -> Path:
    """The folder with both C++ programs and the messages' descriptors."""
    folder = place.folder / "grpc"
    if not folder.exists():
        folder.mkdir()
        build_grpc(folder, "compilation")
    return folder


KINDS = (aot, onnx, shm, shm_each, shm_8, shm_py, shm_py_8, shm_onnx, llvm, llvm_py, mlcb, grpc, grpc_py)  # fmt: skip
WAYS = {way.__name__: way for way in KINDS}


def start(place: Place, names: Sequence[str]) -> list[Way]:
    """Every way that can run here; aot is the first."""
    folder, ways = place.folder / "build", []
    folder.mkdir()
    build(folder, PROGRAMS)
    for name in dict.fromkeys(["aot", *names]):
        try:
            ways.append(WAYS[name](place, folder))
        except (ImportError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    return ways


def record(folder: Path) -> None:
    """Writes the gaps between the questions of deploy.py's compilation, which asks in its own
    process: at most MOST_GAPS, from the middle."""
    [case], log = inliner(folder).values(), folder / "times"
    env = {
        **os.environ,
        "SHMBRIDGE_URL": case.url("onnx", ".onnx"),
        "LD_PRELOAD": str(build_question_times(folder)),
        "QUESTION_TIMES": str(log),
    }
    subprocess.run([*case.asking, *case.sources, "-o", folder / "out.o"], check=True, env=env)
    questions = np.fromfile(log, np.int64).reshape(-1, 2)
    gaps = (questions[1:, 0] - questions[:-1, 1]) / 1000
    skip = max(0, len(gaps) - MOST_GAPS) // 2
    np.savetxt(GAPS, gaps[skip : skip + MOST_GAPS], "%.4g")  # compressed, by its name


def compare(cells: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Quartiles of the figures, and of the differences and ratios to aot in the same
    alternation."""
    pairs = list(zip(cells, base, strict=True))
    found = {figure: quartiles([cell[figure] for cell in cells]) for figure in FIGURES}
    found["over aot"] = quartiles([a["mean"] - b["mean"] for a, b in pairs])
    # the mean of these: a tick of /proc/stat is 20 us per question
    found["system over aot"] = [statistics.mean(a["system"] - b["system"] for a, b in pairs)] * 3
    found["both over aot"] = quartiles([a["both"] - b["both"] for a, b in pairs])
    found["wall / aot"] = quartiles([a["wall"] / b["wall"] for a, b in pairs])
    return found


def show(name: str, found: dict[str, list[float]], loops: int) -> None:
    def middle(figure: str, width: int, digits: int = 1) -> str:
        return f"{found[figure][1]:{width}.{digits}f}"

    def span(figure: str, digits: int) -> str:
        low, _, high = found[figure]
        return f"{middle(figure, 9, digits)}{f'({low:.{digits}f} to {high:.{digits}f})':>19}"

    system = f"{'-':>9}" if loops else middle("system over aot", 9)
    print(
        f"  {name:12}{span('over aot', 1)}{middle('mean', 9)}{middle('p50', 9)}{middle('p99', 9)}"
        f"{middle('host', 8)}{middle('both over aot', 8)}{system}{span('wall / aot', 3)}",
        flush=True,
    )


def situation(
    ways: list[Way], options: argparse.Namespace, steps: str, jobs: int, loops: int
) -> dict[str, Any]:
    """Alternates all ways; prints a line for each."""
    cells: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
    with endless_loops(loops):
        for i in range(options.alternations):
            for way in turns(ways, i):
                first = i * options.questions
                one = cell(way, options.gaps, steps, jobs, first, options.questions)
                cells[way.name].append(one)
    if len({str(one["advice"]) for each in cells.values() for one in each}) != 1:
        raise RuntimeError("the ways' decisions differ")
    found = {way.name: compare(cells[way.name], cells[ways[0].name]) for way in ways}
    print(f"\n== {jobs} compilers, {loops} loops: us per question, medians (quartiles)")
    print(
        f"  {'':12}{'over aot':>9}{'':19}{'mean':>9}{'p50':>9}{'p99':>9}{'host':>8}{'both':>8}{'system':>9}{'wall / aot':>14}"
    )
    for name, figures in found.items():
        show(name, figures, loops)
    return {"jobs": jobs, "loops": loops, "alternations": options.alternations, "figures": found}


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(WAYS)}")
    parser.add_argument("--gaps", help="a file, or us; default: the recorded ones")
    parser.add_argument("--jobs", default=f"1,{cores},{2 * cores}", help="compilers at once")
    parser.add_argument("--loops", default=f"0,{cores}", help="endless loops meanwhile")
    parser.add_argument("--alternations", type=int, default=15)
    parser.add_argument("--questions", type=int, default=500, help="of each compiler")
    parser.add_argument("--record", action="store_true", help="only record the gaps")
    parser.add_argument(
        "--json", type=Path, help="write the figures to this file; replaces its rows"
    )
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(WAYS)
    if set(names) - WAYS.keys():
        parser.error(f"--only: expected some of {', '.join(WAYS)}; found {options.only}")
    if (
        options.gaps
        and not Path(options.gaps).is_file()
        and not options.gaps.replace(".", "", 1).isdigit()
    ):
        parser.error(f"--gaps: expected a file, or us; found {options.gaps}")
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # where the core looks for ONNX Runtime
    jobs, loops = ([int(n) for n in text.split(",")] for text in (options.jobs, options.loops))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    results: dict[str, Any] = {
        "machine": machine(),
        "gaps": Path(options.gaps).name if options.gaps else "gaps.txt",
        "situations": [],
    }
    if options.json and options.json.exists():
        old = json.loads(options.json.read_text())["situations"]
        results["situations"] = [each for each in old if each["jobs"] not in jobs]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.record:
            record(folder)
            return
        options.gaps = options.gaps or recorded_gaps(folder)
        model = folder / "policy.onnx"
        subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
        place = Place(folder, model, max(jobs), stack)
        ways = start(place, names)
        steps = subprocess.check_output([ways[0].program, "calibrate"], text=True).strip()
        for load in loops:
            for at_once in jobs:
                results["situations"].append(situation(ways, options, steps, at_once, load))
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

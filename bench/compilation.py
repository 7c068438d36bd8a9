"""The cost of a question between the steps of a real compilation, for every way to the model.

    python bench/compilation.py [--only NAMES] [--gaps FILE|US] [--jobs N,...] [--loops N,...]
        [--alternations N] [--questions N] [--before CHECKOUT] [--json FILE]
    python bench/compilation.py --record FOLDER

compilation.c replays a real compilation: it computes for as long as the compiler did, then asks
with LLVM's 38 features. Every way has the policy of examples/llvm/inliner.

aot       compiled by `shmbridge compile`, in the compiler
onnx      ONNX Runtime in the compiler
shm       shared memory, a host in C
shm_8     the same host, 8 questions in flight: after the work of 8 gaps
shm_py    shared memory, `shmbridge serve --python`
shm_py_8  the same, 8 questions in flight
shm_onnx  shared memory, `shmbridge serve --onnx`
llvm      LLVM's interactive channel over pipes, a reader in C
llvm_py   the same, a reader in Python
mlcb      ML-Compiler-Bridge's pipes: our runner, PyPI's compilerinterface
grpc      a gRPC stream over a Unix socket, C++ on both sides
grpc_py   the same, a server in Python

An alternation measures each way once, with the same part of the gaps. --record compiles zstd and
zopfli as deploy.py does, and writes the gaps between their questions. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deploy
import numpy as np
from llvm_inliner import INLINER
from program import SHMBRIDGE, busy_seconds, cpu_of, started, turns
from run import build, build_grpc, first_line, machine
from waiting import Row, beside

HERE = Path(__file__).parent
GAPS = HERE / "gaps"
MOST_GAPS = 1500
PROGRAMS = (["compilation", "compilation_ask"], ["compilation_host"])
IN_FLIGHT = (["compilation", "compilation_ask", "compilation_together"], PROGRAMS[1])
MODELS = """
import os, struct, time

def advise(request):
    return float(request["li_size"][0])

def timed(request):  # question_times.c does not see the questions of shmb_drive
    import phase_policy

    start = time.monotonic_ns()
    advice = phase_policy.advise(request)
    with open(os.environ["QUESTION_TIMES"], "ab") as log:
        log.write(struct.pack("qq", start, time.monotonic_ns()))
    return advice
"""
FIGURES = ("mean", "p50", "p99", "host", "both", "system", "wall")


@dataclass
class Way:
    """A way to the model. `servers` are processes that answer all compilers; `each` starts one for
    each compiler, in the place of "{base}"."""

    name: str
    program: Path
    url: str
    servers: Sequence[int] = ()
    each: Sequence[object] = ()
    together: int = 1  # questions in flight


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

    def build(self, name: str, programs: Sequence[Sequence[str]], tree: Path) -> Path:
        """The C programs with the core of this checkout; their folder."""
        folder = self.folder / name
        folder.mkdir()
        build(folder, programs, tree)
        return folder


def aot(place: Place, build: Path) -> Way:
    library = place.folder / "model.so"
    subprocess.run([SHMBRIDGE, "compile", place.model, "-o", library], check=True)
    return Way("aot", build / "compilation", f"aot://{library}")


def onnx(place: Place, build: Path) -> Way:
    return Way("onnx", build / "compilation", f"onnx://{place.model}")


def shm(place: Place, build: Path) -> Way:
    server, name = place.serve(build / "compilation_host", "shm", place.channels)
    return Way("shm", build / "compilation", f"shm://{name}", [server])


def _in_flight(way: Way, name: str) -> Way:
    return Way(name, way.program, f"together:{way.url}", way.servers, together=8)


def shm_8(place: Place, build: Path) -> Way:
    return _in_flight(shm(place, build), "shm_8")


def _serve(name: str, place: Place, build: Path, *model: object, command: str = "") -> Way:
    bridge = f"compilation-{os.getpid()}-{name}"
    words = [command or SHMBRIDGE, "serve", bridge, "--channels", place.channels, *model]
    server, _ = place.serve(*words)
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


ALL = (aot, onnx, shm, shm_8, shm_py, shm_py_8, shm_onnx, llvm, llvm_py, mlcb, grpc, grpc_py)
WAYS = {way.__name__: way for way in ALL}


def before(place: Place, tree: Path, names: Sequence[str]) -> Iterator[Way]:
    """The ways through shared memory of another checkout; those of Python if its .venv-test has
    the package."""
    folder = place.build("before", PROGRAMS, tree)
    command = tree / ".venv-test" / "bin" / "shmbridge"
    models = {"shm_py": ["--python", f"{INLINER / 'policy.py'}:advise"], "shm_onnx": ["--onnx", place.model]}  # fmt: skip
    for name in names:
        if name == "shm":
            way = shm(place, folder)
            way.name = "before"
            yield way
        elif name in models and command.exists():
            yield _serve(f"before_{name[4:]}", place, folder, *models[name], command=str(command))


def start(place: Place, names: Sequence[str], other: Path | None) -> list[Way]:
    """Every way that can run here; aot is the first."""
    folder, ways = place.build("build", IN_FLIGHT, HERE.parent), []
    for name in dict.fromkeys(["aot", *names]):
        try:
            ways.append(WAYS[name](place, folder))
        except (ImportError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    return ways + (list(before(place, other, names)) if other else [])


def cell(way: Way, gaps: str, steps: str, jobs: int, first: int, count: int) -> dict[str, Any]:
    """Runs this many compilers at once; us."""
    with ExitStack() as stack:
        compilers, servers = [], list(way.servers)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for i in range(jobs):
            base = f"{folder}/{i}"
            if way.each:
                server = (str(word).replace("{base}", base) for word in way.each)
                servers.append(stack.enter_context(started(*server))[0].pid)
            url = way.url.replace("{base}", base)
            words = [way.program, url, gaps, steps, first, count, way.together]
            pipe = subprocess.PIPE
            compiler = subprocess.Popen(list(map(str, words)), stdin=pipe, stdout=pipe, stderr=pipe)
            stack.callback(compiler.kill)
            compilers.append(compiler)
        for compiler in compilers:
            assert compiler.stderr
            if compiler.stderr.readline() != b"ready\n":
                raise RuntimeError(f"{way.name}: {compiler.communicate()[1].decode()}")
        used, busy = sum(map(cpu_of, servers)), busy_seconds()
        for compiler in compilers:
            assert compiler.stdin
            compiler.stdin.write(b"\n")
            compiler.stdin.flush()
        said = [np.frombuffer(compiler.communicate()[0], np.int64) for compiler in compilers]
        busy = busy_seconds() - busy
        host = sum(map(cpu_of, servers)) - used
    if any(len(each) != 3 + count for each in said):
        raise RuntimeError(f"{way.name}: a compiler failed")
    us = np.concatenate([each[3:] for each in said]) / 1000
    return {
        "mean": float(us.mean()),
        "p50": float(np.median(us)),
        "p99": float(np.quantile(us, 0.99)),
        "host": host * 1e6 / us.size,
        "system": busy * 1e6 / us.size,
        "both": host * 1e6 / us.size + sum(int(each[1]) for each in said) / 1000 / us.size,
        "wall": max(int(each[0]) for each in said) / 1000,
        "advice": [int(each[2]) for each in said],
    }


def record(folder: Path, to: Path) -> None:
    """Writes the gaps of real compilations: at most MOST_GAPS in a row, from the middle."""
    folders = [folder / "inline", folder / "phases"]
    for each in folders:
        each.mkdir()
    inline, phases = deploy.inline(folders[0], None), deploy.phases(folders[1], None)
    orders = [[word.replace("{print}", "") for word in words] for words in phases.asking]
    commands = {"inline": inline.asking, "phases": orders}
    (folder / "models.py").write_text(MODELS)
    for decision, file in (("inline", INLINER / "policy.py"), ("priority", folder / "models.py")):
        policy = ["--llvm", decision, "--pipes", "--host", f"{file}:advise"]
        commands[f"llvm_{decision}"] = [[SHMBRIDGE, "run", *policy, "--", *inline.plain[0]]]
    log, embedded = folder / "times", folder / "libshmbridge-python.so"
    subprocess.run([SHMBRIDGE, "embed", "-o", embedded], check=True)
    env = {
        **os.environ,
        "LD_PRELOAD": str(deploy.build_question_times(folder)),
        "QUESTION_TIMES": str(log),
        "SHMBRIDGE_PYTHON_LIBRARY": str(embedded),
        "PYTHONPATH": f"{folder}:{HERE}",
    }
    urls = {"inline": f"onnx://{inline.model}", "phases": "python://models:timed"}
    for name, all_of_them in commands.items():
        gaps: list[float] = []
        for command in all_of_them:
            asking = {**env, "SHMBRIDGE_URL": urls.get(name, "")}
            subprocess.run([*command, folder / "out.o"], check=True, env=asking)
            questions = np.fromfile(log, np.int64).reshape(-1, 2)
            log.unlink()
            gaps += ((questions[1:, 0] - questions[:-1, 1]) / 1000).tolist()
        print(f"{name}: {len(gaps)} gaps, mean {statistics.mean(gaps):.0f} us", flush=True)
        skip = max(0, len(gaps) - MOST_GAPS) // 2
        lines = "".join(f"{gap:.4g}\n" for gap in gaps[skip : skip + MOST_GAPS])
        (to / f"{name}.txt").write_text(lines)


def quartiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3  # fmt: skip


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
    with beside(Row("", loops=loops)):
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
    parser.add_argument("--gaps", default=str(GAPS / "inline.txt"), help="a file, or us")
    parser.add_argument("--jobs", default=f"1,{cores},{2 * cores}", help="compilers at once")
    parser.add_argument("--loops", default=f"0,{cores}", help="endless loops meanwhile")
    parser.add_argument("--alternations", type=int, default=15)
    parser.add_argument("--questions", type=int, default=500, help="of each compiler")
    parser.add_argument("--before", type=Path, help="also another checkout's shared memory")
    parser.add_argument("--record", type=Path, help="record gaps of compilations in this folder")
    parser.add_argument(
        "--json", type=Path, help="write the figures to this file; replaces its rows"
    )
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(WAYS)
    if set(names) - WAYS.keys():
        parser.error(f"--only: expected some of {', '.join(WAYS)}; found {options.only}")
    if not Path(options.gaps).is_file() and not options.gaps.replace(".", "", 1).isdigit():
        parser.error(f"--gaps: expected a file, or us; found {options.gaps}")
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # where the core looks for ONNX Runtime
    jobs, loops = ([int(n) for n in text.split(",")] for text in (options.jobs, options.loops))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    results: dict[str, Any] = {
        "machine": machine(),
        "gaps": Path(options.gaps).name,
        "situations": [],
    }
    if options.before:
        results["before"] = first_line(
            ["git", "-C", options.before, "rev-parse", "--short", "HEAD"]
        )
    if options.json and options.json.exists():
        old = json.loads(options.json.read_text())["situations"]
        results["situations"] = [each for each in old if each["jobs"] not in jobs]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.record:
            record(folder, options.record)
            return
        model = folder / "policy.onnx"
        subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
        place = Place(folder, model, max(jobs), stack)
        ways = start(place, names, options.before)
        steps = subprocess.check_output([ways[0].program, "calibrate"], text=True).strip()
        for load in loops:
            for at_once in jobs:
                results["situations"].append(situation(ways, options, steps, at_once, load))
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

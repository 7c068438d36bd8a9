"""Does a build survive whatever happens to its model? python tests/acceptance [--only TEXT]
[--quick]

Two projects from PyPI, zopfli (C, make -j) and marisa-trie (C++, ninja), are built in every way of
asking and every condition. A build must succeed within a bounded multiple of the plain build's
time, leave nothing behind and print at most one line. Its objects must follow the advice, or be the
plain compiler's if there is no usable advice. Then come faults of the past, each on one file.

--only  the cells and faults whose name contains this text, e.g. "connect" or "hanging"
--quick three cells with the C project only, in half a minute

Needs clang-22, llvm-22-dev, cmake, make, ninja, a C compiler and `pip install 'shmbridge[bench]'`.
Takes about 15 minutes on two cores. Exits with 1 if a cell failed.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median

import policies
from faults import ROWS, check_fault

HERE = Path(__file__).absolute().parent
sys.path.append(str(HERE.parents[1]))
from bench.compilers.plugins import build_plugin  # noqa: E402
from bench.program import SHMBRIDGE  # noqa: E402
from bench.sources import fetch_source  # noqa: E402

POLICIES = HERE / "policies.py"
ALL = "inline,evict,priority"
NAME = f"acceptance-{os.getpid()}"
JOBS = 4
TIMES, FILE_SECONDS = 5, 1.0  # limits: of a build, in multiples of plain; more for each file
DEADLINE, SHORT = 10.0, 1.0  # seconds: every runner's default, and what a user asks for
LIMIT = 120  # seconds, after which a build counts as endless

# ---- What is expected ----

# Objects: those of the advice; the plain compiler's; either, each as a whole.
ADVISED, PLAIN, EITHER = "advised", "plain", "either"
CONDITIONS = {"healthy": ADVISED}
CONDITIONS |= dict.fromkeys(("absent", "raising", "hanging", "lying"), PLAIN)
CONDITIONS |= dict.fromkeys(("killed", "wrapper", "static"), EITHER)
IN_COMPILER = "the model is in the compiler's process"
SAME_PLUGIN = "as with shm: the same plug-in"
NOT_TRIED = {
    ("plug-in shm", "static"): "a static compiler loads no plug-in",
    **{(f"plug-in {where}", "killed"): IN_COMPILER for where in ("aot", "onnx", "python")},
    **{(f"plug-in {where}", "wrapper"): SAME_PLUGIN for where in ("aot", "onnx", "python")},
    **{(f"plug-in {where}", "static"): SAME_PLUGIN for where in ("aot", "onnx", "python")},
    ("plug-in aot", "raising"): "compiled arithmetic cannot raise",
    ("plug-in aot", "hanging"): "compiled arithmetic cannot hang",
    ("plug-in onnx", "hanging"): "ONNX Runtime cannot hang on this model",
}  # fmt: skip


@dataclass
class Cell:
    """One way of asking in one condition."""

    way: str
    condition: str
    strict: bool = False  # run --strict: the build fails without an object

    @property
    def name(self):
        return f"{self.way}{' --strict' * self.strict}, {self.condition}"

    @property
    def is_run(self):
        return self.way.startswith("run")

    @property
    def deadline(self):
        """Of a decision. The plug-in over shm has the default."""
        return SHORT if self.is_run or self.way == "plug-in python" else DEADLINE


WAYS = ["run --host", "run --connect", "run --pipes"]
WAYS += [f"plug-in {where}" for where in ("shm", "aot", "onnx", "python")]
CELLS = [Cell(way, condition) for way in WAYS for condition in CONDITIONS]
CELLS += [Cell("run --connect", "absent", strict=True), Cell("run --host", "raising", strict=True)]
QUICK = ["run --host, raising", "run --connect, healthy", "run --connect --strict, absent"]

# ---- Projects ----


@dataclass
class Project:
    """A project's sources, and the tool that builds it."""

    tool: str
    compiler: str
    sources: list[Path]
    flags: list[str] = field(default_factory=list)

    def write(self, folder, prefix, compiler, more):
        """What the tool reads."""
        words = shlex.join([*prefix, compiler, "-O2", "-w", *self.flags, *more])
        objects = [f"{source.stem}.o" for source in self.sources]
        if self.tool == "make":
            folders = " ".join(sorted({str(source.parent) for source in self.sources}))
            lines = [f"all: {' '.join(objects)}", f"vpath %.c {folders}"]
            lines += ["%.o: %.c", f"\t{words} -c $< -o $@", ""]
            (folder / "Makefile").write_text("\n".join(lines))
        else:
            lines = ["rule cc", f"  command = {words} -c $in -o $out"]
            pairs = zip(self.sources, objects, strict=True)
            lines += [f"build {made}: cc {source}" for source, made in pairs]
            (folder / "build.ninja").write_text("\n".join([*lines, ""]))

    def command(self):
        """Builds all, even if some fail."""
        return [self.tool, f"-j{JOBS}", *(["-k"] if self.tool == "make" else ["-k", "0"])]

    def is_done(self, folder):
        """Is the build up to date?"""
        asked = [self.tool, "-q" if self.tool == "make" else "-n"]
        done = subprocess.run(asked, cwd=folder, capture_output=True, text=True)
        return done.returncode == 0 and (self.tool == "make" or "no work to do" in done.stdout)


def projects(folder, quick):
    found = sorted(fetch_source(folder, "zopfli").parent.glob("*.c"))
    c = Project("make", "clang-22", found)
    if quick:
        return [c]
    lib = fetch_source(folder, "marisa").parents[1]
    include = ["-I", str(lib), "-I", str(lib.parent / "include")]
    return [c, Project("ninja", "clang++-22", sorted(lib.rglob("*.cc")), include)]


# ---- Builds ----


@dataclass
class Built:
    """The result of one build."""

    status: int | None  # None: it did not end
    seconds: float
    said: str
    objects: dict[str, bytes]
    done: bool  # the tool had nothing to do afterwards

    @property
    def lines(self):
        """Those of shmbridge."""
        return [line for line in self.said.splitlines() if line.startswith("shmbridge:")]


def build(project, folder, environment):
    start = time.monotonic()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    own = {"cwd": folder, "env": os.environ | environment, "start_new_session": True}
    process = subprocess.Popen(project.command(), **own, **pipes, text=True, errors="replace")
    status = None
    try:
        said, _ = process.communicate(timeout=LIMIT)
        status = process.returncode
    except subprocess.TimeoutExpired:
        said = ""
    finally:
        if status is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    seconds = time.monotonic() - start
    objects = {file.name: file.read_bytes() for file in folder.glob("*.o")}
    return Built(status, seconds, said, objects, project.is_done(folder))


def left():
    """Our files that could remain, except run's notes, one file for each user."""
    places = [Path("/dev/shm"), Path("/tmp")]
    names = [path for place in places for path in place.iterdir() if "shmb" in path.name]
    return {path for path in names if not path.name.startswith(".shmbridge-builds-")}


# ---- Ways of asking ----


class Tools:
    """Requirements: the plug-in, models, Python for the compiler, and two kinds of bad
    compilers."""

    def __init__(self, folder):
        self.folder = folder

    def compiler(self, name, condition):
        """A script that scrubs the environment, or a static program: then LD_PRELOAD does
        nothing."""
        if condition not in ("wrapper", "static"):
            return name
        real, made = shutil.which(name), self.folder / condition / name
        made.parent.mkdir(exist_ok=True)
        if condition == "wrapper":
            made.write_text(f'#!/bin/sh\nexec env -i PATH="$PATH" {real} "$@"\n')
            made.chmod(0o755)
        elif not made.exists():
            source = self.folder / "static.c"
            source.write_text(
                "#include <stdlib.h>\n#include <unistd.h>\n"
                "int main(int count, char **words) { (void)count; "
                f'unsetenv("LD_PRELOAD"); return execv("{real}", words); }}\n'
            )
            subprocess.run(["cc", "-static", "-o", made, source], check=True)
        return str(made)

    @cached_property
    def plugin(self):
        return build_plugin(22, self.folder / "plugin")

    def model(self, condition):
        path = self.folder / f"{condition}.onnx"
        if condition != "absent" and not path.exists():
            policies.write_model(path, condition)
        return path

    def library(self, condition):
        path = self.folder / f"{condition}.so"
        if condition != "absent" and not path.exists():
            model = self.model(condition)
            self._shmbridge("compile", model, "-o", path)
        return path

    def embedding(self):
        path = self.folder / "embedded-python"
        if not path.exists():
            self._shmbridge("embed", "-o", path)
        return path

    def _shmbridge(self, *words):
        subprocess.run([SHMBRIDGE, *map(str, words)], stdout=subprocess.DEVNULL, check=True)


@dataclass
class Asking:
    """The commands of a build's compilers."""

    prefix: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def serving(function, environment):
    """Runs a host at NAME during the block, whatever its model does."""
    words = ["serve", NAME, "--python", f"{POLICIES}:{function}", "--channels", "64"]
    process = subprocess.Popen(
        [SHMBRIDGE, *words], env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        process.stdout.readline()
        yield
    finally:
        process.terminate()
        try:
            process.communicate(timeout=2)
        except subprocess.TimeoutExpired:  # its model hangs
            process.kill()
            process.communicate()
        subprocess.run([SHMBRIDGE, "gc"], stdout=subprocess.DEVNULL, check=True)


@contextmanager
def asking(cell, tools):
    """A way's compilers, and their host, if any."""
    # Of a compiler that is odd.
    function = cell.condition if hasattr(policies, cell.condition) else "healthy"
    there = {"ACCEPTANCE_KILL_AT": "200" if cell.way == "run --connect" else "20"}
    with ExitStack() as stack:
        if cell.way in ("run --connect", "plug-in shm") and cell.condition != "absent":
            stack.enter_context(serving(function, there))
        if not cell.is_run:
            yield Asking([], [f"-fpass-plugin={tools.plugin}"], _build_environment(cell, tools))
            return
        missing = "/nowhere" if cell.condition == "absent" else ""
        policy = ["--host", f"{missing}{POLICIES}:{function}"]
        prefix = [SHMBRIDGE, "run", "--llvm", ALL]
        prefix += ["--connect", NAME] if cell.way == "run --connect" else policy
        prefix += ["--pipes"] if cell.way == "run --pipes" else []
        prefix += ["--deadline", str(SHORT)] if cell.condition == "hanging" else []
        prefix += ["--strict"] if cell.strict else []
        yield Asking([*prefix, "--"], [], there)


def _build_environment(cell, tools):
    where, condition = cell.way.removeprefix("plug-in "), cell.condition
    if where == "shm":
        return {"SHMBRIDGE_URL": f"shm://{NAME}"}
    if where == "onnx":
        return {"SHMBRIDGE_URL": f"onnx://{tools.model(condition)}", "VIRTUAL_ENV": sys.prefix}
    if where == "aot":
        return {"SHMBRIDGE_URL": f"aot://{tools.library(condition)}"}
    deadline = f"&deadline={SHORT}" if condition == "hanging" else ""
    return {
        "SHMBRIDGE_URL": f"python://{POLICIES.stem}:{condition}?path={HERE}{deadline}",
        "SHMBRIDGE_PYTHON": str(tools.embedding()),
    }


# ---- Verdicts ----


class Acceptance:
    """Builds cells, and compares them with the plain builds."""

    def __init__(self, folder, quick):
        self.folder = folder
        self.quick = quick
        self.tools = Tools(folder)
        self.projects = projects(folder, quick)
        self.advised = {}
        self.plain = {}  # objects of each tool
        self.seconds = {}  # of plain builds
        for project in self.projects:
            times = 1 if quick else 3
            built = [self._build(project, Asking(), project.compiler) for _ in range(times)]
            self.plain[project.tool] = built[0].objects
            self.seconds[project.tool] = median(one.seconds for one in built)

    def _build(self, project, ask, compiler):
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        own = folder / "tmp"
        own.mkdir()
        project.write(folder, ask.prefix, compiler, ask.flags)
        return build(project, folder, ask.environment | {"TMPDIR": str(own)})

    def _build_cell(self, project, cell):
        with asking(cell, self.tools) as ask:
            compiler = self.tools.compiler(project.compiler, cell.condition)
            return self._build(project, ask, compiler)

    def check(self, cell):
        """Builds the projects in this cell, prints its row, and returns whether it passed."""
        faults, columns = [], []
        for project in self.projects:
            before, plain = left(), self.plain[project.tool]
            made = self._build_cell(project, cell)
            found = self._faults(cell, project, made) + self._late(cell, project, made)
            if stayed := left() - before:
                found.append(f"left {', '.join(map(str, sorted(stayed)))}")
            faults += [f"{project.tool}: {fault}" for fault in found]
            same = sum(plain[name] == made.objects.get(name) for name in plain)
            ratio = made.seconds / self.seconds[project.tool]
            columns.append([f"{ratio:.1f}", f"{same}/{len(plain)}", str(len(made.lines))])
        times, equal, lines = (" ".join(each) for each in zip(*columns, strict=True))
        verdict = "FAIL" if faults else "pass"
        print(f"{cell.name:34}{times:>12}{equal:>12}{lines:>8}  {verdict}")
        print("".join(f"    {fault}\n" for fault in faults), end="", flush=True)
        return not faults

    def _late(self, cell, project, made):
        """A quick check ignores times."""
        files, most = len(project.sources), TIMES * self.seconds[project.tool]
        most += FILE_SECONDS * files
        if cell.condition == "hanging":
            most += cell.deadline * (1 + files / JOBS)
        late = made.seconds > most and not self.quick
        return [f"{made.seconds:.1f} s, expected at most {most:.1f}"] if late else []

    def _faults(self, cell, project, made):
        """The errors of a build, except its time and remaining files."""
        if made.status is None:
            return [f"still running after {LIMIT} s"]
        if cell.strict:
            wrong = [f"{len(made.objects)} objects were left"] if made.objects else []
            return wrong if made.status else ["the build succeeded", *wrong]
        if made.status:
            last = (made.said.strip() or "-").splitlines()[-1]
            return [f"exit status {made.status}, {len(made.objects)} objects: {last[:200]}"]
        faults = [] if made.done else ["the next build has work to do"]
        # the plug-in belongs to the user: each compiler prints its line
        most = 1 if cell.is_run else len(project.sources)
        if len(made.lines) > most:
            first = made.lines[0][:200]
            faults.append(f"{len(made.lines)} lines, expected at most {most}: {first}")
        return faults + self._wrong_objects(cell, project, made)

    def _wrong_objects(self, cell, project, made):
        expected = CONDITIONS[cell.condition]
        right = [] if expected == ADVISED else [self.plain[project.tool]]
        if expected != PLAIN:
            right.append(self._advised(project, cell.is_run))
        objects = made.objects.items()
        wrong = [name for name, found in objects if found not in [o[name] for o in right]]
        # a plug-in cannot undo advice from before the host was killed
        most = JOBS if cell.condition == "killed" and not cell.is_run else 0
        text = f"{len(wrong)} objects are not {expected}: {', '.join(wrong)}"
        return [text] if len(wrong) > most else []

    def _advised(self, project, by_run):
        """The objects that follow the advice: those of a way that works."""
        key = by_run, project.tool
        if key not in self.advised:
            cell = Cell("run --connect" if by_run else "plug-in shm", "healthy")
            self.advised[key] = self._build_cell(project, cell).objects
            if self.advised[key] == self.plain[project.tool]:
                raise RuntimeError(f"{project.tool}: the advice changes nothing")
        return self.advised[key]


def check_all(cells, folder, quick):
    """Prints the table, and returns how many cells failed."""
    acceptance = Acceptance(folder, quick)
    plain = " and ".join(f"{seconds:.1f} s" for seconds in acceptance.seconds.values())
    print(f"plain: {plain}\n{'':34}{'x plain':>12}{'= plain':>12}{'lines':>8}")
    failed = 0
    for cell in cells:
        if reason := NOT_TRIED.get((cell.way, cell.condition)):
            print(f"{cell.name:34}{'-':>12}  {reason}")
        else:
            failed += not acceptance.check(cell)
    print(f"{failed} of {len(cells)} cells failed")
    return failed


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    cells = [cell for cell in CELLS if not options.quick or cell.name in QUICK]
    chosen = [cell for cell in cells if options.only in cell.name]
    for tool in ("clang-22", "make", "ninja", "cmake"):
        if not shutil.which(tool):
            raise SystemExit(f"expected {tool}: apt-get install clang-22 make ninja-build cmake")
    with tempfile.TemporaryDirectory(prefix="acceptance-") as name:
        failed = check_all(chosen, Path(name), options.quick) if chosen else 0
        for row in () if options.quick else ROWS:
            if options.only in row.what:
                failed += not check_fault(row, Path(name, f"fault-{row.number}"), SHMBRIDGE)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

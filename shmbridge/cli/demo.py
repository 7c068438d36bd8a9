"""shmbridge demo: a compiler asks a model, with the time that a question takes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from shmbridge import _config
from shmbridge.cli._console import console, escape
from shmbridge.demo.model import PATTERNS, advise
from shmbridge.training.scores import text_size

QUESTIONS, PAIRS = 2000, 5
CLANGS = ("clang-22", "clang-21", "clang-20", "clang-19", "clang")  # whose inliner can ask
POLICY = """\
def advise(request):
    return int(request["callee_basic_block_count"][0] < 8)  # 1: inline the call
"""
MODEL = "shmbridge.demo.model:advise"
FLAGS = "$(shmbridge config --cflags --libs)"
SMALL = ("--channels", "4", "--request-bytes", "64K")  # fits where /dev/shm is small
Percentiles = npt.NDArray[np.float64]  # 50, 90 and 99, in µs


class Stage:
    """Runs and shows the demo's programs, in a folder of their own."""

    def __init__(self, out: Console, directory: Path) -> None:
        self.out, self.directory = out, directory

    def title(self, text: str) -> None:
        """Prints a heading."""
        self.out.print(f"\n[bold cyan]{escape(text)}[/]")

    def say(self, text: str) -> None:
        """Prints a line of rich's markup."""
        self.out.print(f"  {text}", soft_wrap=True)

    def show(self, line: str) -> None:
        """Prints a command as a user would type it."""
        self.say(f"[green]$[/] {escape(line)}")

    def run(self, *command: object) -> str:
        """What a command prints, stderr included. ClickException if it fails."""
        words = [str(word) for word in command]
        with self.out.status(Path(words[0]).name):
            done = subprocess.run(
                words, cwd=self.directory, text=True, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        if done.returncode:
            raise click.ClickException(
                f"{words[0]} ended with {done.returncode}:\n{done.stdout.strip()}"
            )
        return done.stdout

    @contextmanager
    def serve(self, name: str) -> Iterator[str]:
        """Runs `shmbridge serve` in its own process during the block. Yields the URL."""
        words = ["serve", name, "--python", MODEL]
        self.show(shlex.join(["shmbridge", *words]).replace(f"{self.directory}/", ""))
        url = name if "://" in name else f"shm://{name}"
        small = SMALL if url.startswith("shm:") else ()
        command = [sys.executable, "-m", "shmbridge.cli", *words, *small, "--until-idle", "60"]
        host = subprocess.Popen(command, cwd=self.directory, text=True, stdout=subprocess.PIPE)
        assert host.stdout
        try:
            if not host.stdout.readline():
                raise click.ClickException("the host did not start")  # and has said why
            yield url
        finally:
            host.terminate()
            host.stdout.read()
            host.wait()


def _ask(stage: Stage, url: str) -> tuple[list[str], Percentiles]:
    """Runs ask.c: what it prints for users, and the round trip."""
    *shown, last = stage.run("./ask", url, "core.c", QUESTIONS).splitlines()
    found = json.loads(last)
    if found["answered"] < QUESTIONS:
        raise click.ClickException(f"{url}: answered {found['answered']} of {QUESTIONS} questions")
    return shown, np.array([found["p50_us"], found["p90_us"], found["p99_us"]])


def _alone() -> Percentiles:
    """The model's own time: a call of the function."""
    counts, times = {"features": np.ones(len(PATTERNS), np.float32)}, []
    for _ in range(QUESTIONS):
        start = time.perf_counter_ns()
        advise(counts)
        times.append(time.perf_counter_ns() - start)
    return np.asarray(np.percentile(times, (50, 90, 99)) / 1e3)


def _clang(stage: Stage, clang: str, sources: Path) -> None:
    """An unmodified clang compiles the C library, without and with a policy's advice."""
    stage.directory.joinpath("policy.py").write_text(POLICY)
    for line in POLICY.splitlines():
        stage.say(f"[dim]{escape(line)}[/]")
    file = sources / "text" / "json_reader.c"
    compiles = [clang, "-Oz", "-D_GNU_SOURCE", *shlex.split(_config.cflags()), f"-I{sources}", "-c"]
    advised = [sys.executable, "-m", "shmbridge.cli", "run", "-v", "--llvm", "inline"]
    advised += ["--host", "policy:advise", "--", *compiles]
    stage.show(
        f"shmbridge run -v --llvm inline --host policy:advise -- {clang} -Oz … -c {file.name}"
    )
    stage.run(*compiles, file, "-o", "plain.o")
    stage.say(escape(stage.run(*advised, file, "-o", "advised.o").strip()))
    plain, changed = (text_size(stage.directory / f"{name}.o") for name in ("plain", "advised"))
    stage.say(f"Bytes of code: {plain:.0f} with clang's own heuristic, {changed:.0f} with advice.")


def _idle_cpus() -> float:
    """How many CPUs are idle, over a quarter of a second."""
    ticks = []
    for _ in range(2):
        ticks.append(int(Path("/proc/stat").read_text().split()[4]))  # cpu user nice system idle
        time.sleep(0.25 if len(ticks) == 1 else 0)
    return (ticks[1] - ticks[0]) / 0.25 / os.sysconf("SC_CLK_TCK")


def _costs(stage: Stage, memory: str, pipes: str) -> None:
    idle = _idle_cpus()
    pairs = np.array([[_ask(stage, url)[1] for url in (memory, pipes)] for _ in range(PAIRS)])
    alone, (of_memory, of_pipes) = _alone(), np.median(pairs, axis=0)
    ratio = float(np.median(pairs[:, 1, 0] / pairs[:, 0, 0]))
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for title in ("round trip in µs", "p50", "p90", "p99", "ratio"):
        table.add_column(title, justify="left" if "µs" in title else "right")
    rows: Sequence[tuple[str, Percentiles, str]] = (
        ("shared memory", of_memory, "1"),
        ("named pipes", of_pipes, f"{ratio:.1f}"),
        ("the model alone", alone, ""),
    )
    for name, times, relative in rows:
        table.add_row(name, *(f"{value:.1f}" for value in times), relative)
    stage.out.print(table)
    stage.say(
        f"The model alone: {alone[0]:.1f} µs. Round trips are medians of {PAIRS} alternating pairs "
        f"of runs with {QUESTIONS} questions each. Named pipes: a pipe:// host with "
        "ML-Compiler-Bridge's bitstream."
    )
    if idle < 1.8:
        stage.say(
            f"[yellow]Each side needs its own CPU, but only {idle:.1f} are idle: "
            "do not rely on these figures.[/]"
        )


@click.command()
def demo() -> None:
    """Let a compiler ask a toy model about real C code.

    Serves the model, compiles and runs examples/c/ask.c with the installed library, and compares
    the round trip with named pipes and with the model alone. If clang is installed, it then
    compiles a file with a policy's advice.
    """
    compiler = next(filter(shutil.which, (os.environ.get("CC", "cc"), "cc", "gcc", "clang")), None)
    if compiler is None:
        raise click.ClickException("expected a C compiler, found none: apt install gcc")
    for number in (signal.SIGTERM, signal.SIGHUP):  # also end the running programs
        signal.signal(number, signal.default_int_handler)
    started, out = time.monotonic(), console()
    with TemporaryDirectory(prefix="shmbridge-demo-") as where:
        stage = Stage(out, Path(where))
        core = sorted((_config.prefix() / "src").rglob("*.c"))
        Path(where, "core.c").write_text("".join(file.read_text() for file in core))
        stage.title("Serve a model")
        stage.say(
            "A toy model: 16 counts of a C function's text, 4 hidden units, 1 answer. Its weights "
            "were set by hand, not trained."
        )
        pipe = f"pipe://{where}/pipe?serdes=bitstream"
        with stage.serve(f"demo-{os.getpid()}") as memory, stage.serve(pipe) as pipes:
            stage.title("A compiler asks: inline this function?")
            stage.show(f"{compiler} -O2 ask.c {FLAGS} -o ask && ./ask {memory} core.c {QUESTIONS}")
            flags = shlex.split(f"{_config.cflags()} {_config.libs()}")
            stage.run(compiler, "-O2", _config.examples() / "c" / "ask.c", *flags, "-o", "ask")
            for line in _ask(stage, memory)[0]:
                stage.say(escape(line))
            stage.title("The time of a question")
            _costs(stage, memory, pipes)
        stage.title("A real compiler asks: clang, unmodified")
        clang = next(filter(shutil.which, CLANGS), None)
        if clang:
            _clang(stage, clang, _config.prefix() / "src")
        else:
            stage.say("No clang was found: apt install clang, 19 or later.")
        stage.title("Next steps")
        for line in (
            f"shmbridge serve mine --python {MODEL} --background",
            f"cc -O2 $(shmbridge config --examples)/c/ask.c {FLAGS} -o ask && ./ask shm://mine",
            "shmbridge ls",
            "shmbridge stop mine",
            "shmbridge serve --help     # your own model: --python my_model:advise, or --onnx "
            "my_model.onnx",
            "shmbridge run --help       # an unmodified clang asks it: --llvm inline --host "
            "my_model:advise -- clang -O2 …",
        ):
            stage.show(line)
    out.print(f"\n[dim]{time.monotonic() - started:.0f} s[/]")

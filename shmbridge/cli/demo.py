"""shmbridge demo: a compiler asks a model, with the time that a question takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import numpy.typing as npt
from rich.table import Table

import shmbridge
from shmbridge import _config
from shmbridge._runner.urls import resolve
from shmbridge.cli._console import console, escape
from shmbridge.demo.model import PATTERNS, advise, onnx_bytes
from shmbridge.demo.stage import Stage, flags

QUESTIONS, PAIRS = 2000, 5
Figures = tuple[npt.NDArray[np.float64], float]  # of memory and pipes; their medians' ratio
MODEL, NOTHING = "shmbridge.demo.model:advise", "shmbridge.demo.model:nothing"
FUNCTION = re.compile(  # the same functions as in ask.c
    r"^(?=[a-zA-Z])[^(;{]*?(\w+)\([^;{]*\{.*?(?:^|[^\n])\}$", re.MULTILINE | re.DOTALL
)
LLVM = "22"


def _onnx_runtime() -> str | None:
    """The version of ONNX Runtime, or None."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return str(onnxruntime.__version__)


def _compiler() -> str | None:
    return next(filter(shutil.which, (os.environ.get("CC", "cc"), "cc", "gcc", "clang")), None)


def _core() -> list[Path]:
    """The C sources of shmbridge itself, which the demo's compilers compile."""
    return sorted((_config.prefix() / "src").rglob("*.c"))


def _ask_in_c(stage: Stage, compiler: str, url: str, source: Path) -> None:
    ask = _config.examples() / "c" / "ask.c"
    stage.run(compiler, "-O2", ask, *flags(), "-o", "ask")
    *shown, _for_programs = stage.run("./ask", url, source.name, QUESTIONS).splitlines()
    for line in shown:
        stage.say(escape(line))


def _ask_in_python(stage: Stage, url: str, source: Path) -> None:
    found = [(match[1], match[0]) for match in FUNCTION.finditer(source.read_text())]
    with shmbridge.connect(url) as runner:
        for name, text in found[:10]:
            counts = np.array([text.count(pattern) for pattern in PATTERNS], np.float32)
            advice = runner.evaluate({"features": counts, "function": name})
            stage.say(f"  {name[:30]:30} {'inline' if advice else 'call'}")


def _round_trips(stage: Stage, url: str, source: Path) -> npt.NDArray[np.float64]:
    """Percentiles 50, 90 and 99 in us, measured by ask.c."""
    printed = stage.quiet("./ask", url, source.name, QUESTIONS).splitlines()[-1]
    found = json.loads(printed)
    if found["answered"] < QUESTIONS:
        raise click.ClickException(f"{url}: answered {found['answered']} of {QUESTIONS} questions")
    return np.array([found["p50_us"], found["p90_us"], found["p99_us"]])


def _race(stage: Stage, number: int, model: Sequence[object], source: Path) -> Figures:
    pipe = f"pipe://{stage.directory}/pipe{number}?serdes=bitstream"
    with (
        stage.serve(f"{stage.name}-{number}", *model) as memory,
        stage.serve(pipe, *model) as pipes,
    ):
        pairs = [
            [_round_trips(stage, url, source) for url in (memory, pipes)] for _ in range(PAIRS)
        ]
    times = np.array(pairs)
    return np.median(times, axis=0), float(np.median(times[:, 1, 0] / times[:, 0, 0]))


def _alone(stage: Stage, onnx: Path | None, source: Path) -> npt.NDArray[np.float64]:
    """The same percentiles of the model's own time: in ask's process, or a call of the function."""
    if onnx:
        return _round_trips(stage, resolve(f"onnx://{onnx}"), source)
    counts, times = {"features": np.ones(len(PATTERNS), np.float32)}, []
    for _ in range(QUESTIONS):
        start = time.perf_counter_ns()
        advise(counts)
        times.append(time.perf_counter_ns() - start)
    return np.asarray(np.percentile(times, (50, 90, 99)) / 1e3)


def _idle_cpus() -> float:
    """How many CPUs are idle, over a quarter of a second."""
    ticks = []
    for _ in range(2):
        ticks.append(int(Path("/proc/stat").read_text().split()[4]))  # cpu user nice system idle
        time.sleep(0.25 if len(ticks) == 1 else 0)
    return (ticks[1] - ticks[0]) / 0.25 / os.sysconf("SC_CLK_TCK")


def _costs(stage: Stage, model: Sequence[object], onnx: Path | None, source: Path) -> None:
    idle = _idle_cpus()
    results = {
        "with the model": _race(stage, 1, model, source),
        "with an empty model": _race(stage, 2, ("--python", NOTHING), source),
    }
    alone = _alone(stage, onnx, source)
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("round trip in µs")
    for title in ("", "p50", "p90", "p99", "ratio"):
        table.add_column(title, justify="right" if title else "left")
    for name, ((memory, pipes), ratio) in results.items():
        table.add_row(name, "shared memory", *(f"{value:.1f}" for value in memory), "1")
        table.add_row("", "named pipes", *(f"{value:.1f}" for value in pipes), f"{ratio:.1f}")
    table.add_row("no transport", "the model alone", *(f"{value:.1f}" for value in alone))
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


def _llvm_missing() -> str:
    """A missing requirement of the plug-in; empty if none is missing."""
    if not shutil.which(f"clang-{LLVM}"):
        return f"clang-{LLVM}"
    config = shutil.which(f"llvm-config-{LLVM}")
    include = (
        subprocess.run([config, "--includedir"], text=True, capture_output=True).stdout.strip()
        if config
        else ""
    )
    return "" if Path(include, "llvm/Plugins/PassPlugin.h").is_file() else f"llvm-{LLVM}-dev"


def _text_size(objects: Sequence[Path]) -> int:
    """Bytes of code and constants."""
    tools = subprocess.run(
        [f"llvm-config-{LLVM}", "--bindir"], text=True, capture_output=True, check=True
    ).stdout
    sizes = subprocess.run(
        [Path(tools.strip(), "llvm-size"), *objects], text=True, capture_output=True, check=True
    )
    return sum(int(line.split()[0]) for line in sizes.stdout.splitlines()[1:])


def _real_compiler(stage: Stage) -> None:
    inliner = _config.examples() / "llvm" / "inliner"
    config = f"llvm-config-{LLVM}"
    cxxflags = subprocess.run(
        [config, "--cxxflags"], text=True, capture_output=True, check=True
    ).stdout.split()
    stage.short[shlex.join(cxxflags)] = f"$({config} --cxxflags)"
    stage.run(
        f"clang++-{LLVM}",
        *cxxflags,
        "-shared",
        "-fPIC",
        inliner / "inliner.cpp",
        *flags(),
        "-o",
        "inliner.so",
    )
    sizes = []
    compile_core = [f"clang-{LLVM}", "-Oz", "-std=c11", "-D_GNU_SOURCE",
        '-DSHMB_VERSION_TEXT="demo"',
                    *shlex.split(_config.cflags()), f"-I{_config.prefix() / 'src'}"]  # fmt: skip
    log = stage.directory / "decisions.jsonl"
    with stage.serve(
        f"{stage.name}-inliner", "--python", "policy:advise", "--log", log, cwd=inliner
    ) as url:
        for kind, options in (
            ("plain", []),
            ("advised", [f"-fpass-plugin={stage.directory / 'inliner.so'}"]),
        ):
            (stage.directory / kind).mkdir()
            if kind == "advised":
                stage.say(
                    f"[green]$ SHMBRIDGE_URL={url} clang-{LLVM} -Oz -fpass-plugin=inliner.so … -c "
                    "src/*.c[/]"
                )
            command = [*compile_core, *options, "-c", *_core()]
            if printed := stage.quiet(*command, cwd=stage.directory / kind, url=url):
                raise click.ClickException(f"expected no messages from clang, found: {printed}")
            sizes.append(_text_size(sorted((stage.directory / kind).glob("*.o"))))
    decisions = [json.loads(line) for line in log.read_text().splitlines()]
    inlined = sum(decision["advice"]["advice"] for decision in decisions)
    stage.say(
        f"clang asked about {len(decisions)} call sites in shmbridge's C code, with "
        f"{len(decisions[0]['features'])} features each: [bold]{inlined} inlined[/], "
        f"{len(decisions) - inlined} not."
    )
    change = 100 * (sizes[1] / sizes[0] - 1)
    stage.say(
        f"Object code: {sizes[0]} bytes with plain -Oz, {sizes[1]} with the advice "
        f"([bold]{change:+.1f} %[/])."
    )


def _next(stage: Stage, compiler: bool) -> None:
    stage.title("Next steps")
    ask = (
        "$(shmbridge config --examples)/c/ask.c $(shmbridge config --cflags --libs) -o ask && "
        "./ask shm://mine"
    )
    for line in (
        f"shmbridge serve mine --python {MODEL} --background",
        f"cc -O2 {ask}"
        if compiler
        else 'python -c \'import shmbridge; print(shmbridge.connect("mine").evaluate({"features": '
        "[1.0] * 16}))'",
        "shmbridge ls",
        "shmbridge stop mine",
        "shmbridge serve --help     # your own model: --python my_model:advise, or --onnx "
        "my_model.onnx",
        "shmbridge run --help       # an unmodified clang asks it: --llvm inline --host "
        "my_model:advise -- clang -O2 …",
    ):
        stage.say(f"[green]$[/] {escape(line)}")


@click.command()
@click.option(
    "--llvm/--no-llvm",
    default=True,
    help=f"Also build the LLVM plug-in, if clang-{LLVM} and llvm-{LLVM}-dev are installed.",
)
def demo(llvm: bool) -> None:
    """Let a compiler ask a toy model about real C code.

    Serves the model, compiles and runs examples/c/ask.c with the installed library, and compares
    the round trip with named pipes and with the model alone.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):  # also end the running programs
        signal.signal(number, signal.default_int_handler)
    started, out = time.monotonic(), console()
    with TemporaryDirectory(prefix="shmbridge-demo-") as where:
        stage = Stage(out, Path(where))
        runtime, compiler = _onnx_runtime(), _compiler()
        onnx = stage.directory / "toy.onnx" if runtime else None
        source = stage.directory / "core.c"
        source.write_text("".join(file.read_text() for file in _core()))

        stage.title("Serve a model")
        stage.say(
            "A toy model: 16 counts of a C function's text, 4 hidden units, 1 answer. Its weights "
            "were set by hand, not trained."
        )
        if onnx:
            onnx.write_bytes(onnx_bytes())
        by = (
            f"ONNX Runtime {runtime}"
            if runtime
            else "numpy; for ONNX Runtime: pip install 'shmbridge[onnx]'"
        )
        model = ("--onnx", onnx.name) if onnx else ("--python", MODEL)
        with stage.serve(stage.name, *model) as url:
            stage.say(f"computed by {escape(by)}")
            stage.title("A compiler asks: inline this function?")
            if compiler:
                _ask_in_c(stage, compiler, url, source)
            else:
                stage.say(
                    "[yellow]No C compiler (apt install gcc): a Python runner asks instead.[/]"
                )
                _ask_in_python(stage, url, source)
        if compiler:
            stage.title("The time of a question")
            _costs(stage, model, onnx, source)
        if llvm:
            stage.title(f"A real compiler asks: clang {LLVM}, unmodified")
            missing = _llvm_missing()
            try:
                if missing:
                    readme = _config.examples() / "llvm" / "inliner" / "README.md"
                    stage.say(f"skipped: {missing} is not installed (see {readme})")
                else:
                    _real_compiler(stage)
            # For example, no C++ headers. The rest of the demo still helps.
            except click.ClickException as error:
                stage.say(f"[yellow]skipped: {escape(error.message)}[/]")
        _next(stage, compiler is not None)
    out.print(f"\n[dim]{time.monotonic() - started:.0f} s[/]")

"""shmbridge demo: a compiler asks a model, with the time that a question takes."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from shmbridge import Host, _config, connect
from shmbridge.cli._processes import on_signals
from shmbridge.demo.model import advise
from shmbridge.training.scores import text_size

CLANGS = ("clang-22", "clang-21", "clang-20", "clang-19", "clang")  # whose inliner can ask
POLICY = """\
def advise(request):
    return int(request["callee_basic_block_count"][0] < 8)  # 1: inline the call
"""
ZEROS = """\
import numpy
def advise(request):
    return numpy.zeros({0.shape}, "{0.dtype}")
"""
OURS = [sys.executable, "-m", "shmbridge.cli"]
SECONDS = 1.0  # of questions over each transport


def _run(folder: str, *words: object) -> str:
    """What a command prints, stderr included. ClickException if it fails."""
    command, pipe = [str(word) for word in words], subprocess.PIPE
    done = subprocess.run(
        command, cwd=folder, text=True, check=False, stdout=pipe, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise click.ClickException(f"{command[0]} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _ask(folder: str, compiler: str) -> Iterator[str]:
    """A small compiler asks the toy model about the C library's functions."""
    name, ask = f"demo-{os.getpid()}", _config.examples() / "c" / "ask.c"
    core = sorted((_config.prefix() / "src").rglob("*.c"))
    Path(folder, "core.c").write_text("".join(file.read_text() for file in core))
    yield f"$ shmbridge serve {name} --python shmbridge.demo.model:advise"
    yield f"$ {compiler} -O2 ask.c $(shmbridge config --cflags --libs) -o ask"
    yield f"$ ./ask shm://{name} core.c 2000"
    flags = shlex.split(f"{_config.cflags()} {_config.libs()}")
    _run(folder, compiler, "-O2", ask, *flags, "-o", "ask")
    with Host(name, channels=4, request_bytes=1 << 16) as host, host.start(advise):
        *lines, _ = _run(folder, "./ask", f"shm://{name}", "core.c", 2000).splitlines()
    yield from lines
    yield "(Each side needs an idle CPU.)"


def _clang(folder: str, clang: str) -> Iterator[str]:
    """An unmodified clang compiles a file of the C library, without and with advice."""
    Path(folder, "policy.py").write_text(POLICY)
    sources = _config.prefix() / "src"
    compiles = [clang, "-Oz", "-D_GNU_SOURCE", *shlex.split(_config.cflags()), f"-I{sources}", "-c"]
    compiles.append(str(sources / "text" / "json_reader.c"))
    run = ["run", "-v", "--llvm", "inline", "--host", "policy:advise", "--"]
    yield from POLICY.splitlines()
    yield f"$ shmbridge {' '.join(run)} {clang} -Oz … -c json_reader.c"
    _run(folder, *compiles, "-o", "plain.o")
    yield _run(folder, *OURS, *run, *compiles, "-o", "advised.o").strip()
    plain, changed = (text_size(Path(folder, f"{name}.o")) for name in ("plain", "advised"))
    yield f"Bytes of code: {plain:.0f} with clang's own heuristic, {changed:.0f} with advice."


def _arrays(_context: object, _option: object, text: str | None) -> list[np.ndarray[Any, Any]]:
    """float32[300],int64[38] as arrays of zeros."""
    arrays = []
    for part in re.split(r",(?![^\[]*\])", text) if text else []:
        dtype, _, dims = part.removesuffix("]").partition("[")
        try:
            arrays.append(np.zeros([int(n) for n in dims.split(",") if dims], dtype))
        except (TypeError, ValueError) as error:
            message = f"{part}: expected DTYPE[DIMS], as in float32[300]: {error}"
            raise click.BadParameter(message) from error
    return arrays


def _measure(
    folder: str, features: list[np.ndarray[Any, Any]], advice: np.ndarray[Any, Any]
) -> Iterator[str]:
    """Python asks a Python function with this message, over each transport."""
    Path(folder, "policy.py").write_text(ZEROS.format(advice))
    message = {f"feature{i}": feature for i, feature in enumerate(features)}
    room = sum(feature.nbytes + 4096 for feature in features)
    urls = [f"shm://demo-{os.getpid()}?request_bytes={room}", f"pipe://{folder}/pipe"]
    urls += [f"grpc://unix:{folder}/grpc"] if find_spec("grpc") else []
    for url in urls:
        _run(folder, *OURS, "serve", url, "--python", "policy:advise", "--background")
        try:
            with connect(url.partition("?")[0]) as runner:
                times = [time.perf_counter()]
                while times[-1] - times[0] < SECONDS:
                    runner.evaluate(message)
                    times.append(time.perf_counter())
        finally:
            _run(folder, *OURS, "stop", url)
        p50, p99 = np.quantile(np.diff(times) * 1e6, [0.5, 0.99])
        yield f"{url.partition(':')[0]:5} p50 {p50:8.1f} us   p99 {p99:8.1f} us"


@click.command()
@click.option(
    "--features",
    callback=_arrays,
    metavar="DTYPE[DIMS],...",
    help="Instead, measure such a message through shared memory, pipes and, where installed, gRPC: "
    "float32[300],int64[38], for example.",
)
@click.option("--advice", callback=_arrays, default="int64", help="The advice for it.")
def demo(features: list[np.ndarray[Any, Any]], advice: list[np.ndarray[Any, Any]]) -> None:
    """Let a compiler ask a toy model about real C code.

    Serves the model, and compiles and runs examples/c/ask.c with the installed library. If clang is
    installed, it then compiles a file with a policy's advice.
    """
    on_signals(signal.default_int_handler)  # its programs end, too
    if features:
        with TemporaryDirectory(prefix="shmbridge-demo-") as folder:
            for line in _measure(folder, features, advice[0]):
                click.echo(line)
        return
    compiler = next(filter(shutil.which, (os.environ.get("CC", "cc"), "cc", "gcc", "clang")), None)
    clang = next(filter(shutil.which, CLANGS), None)
    if compiler is None:
        raise click.ClickException("expected a C compiler, found none: apt install gcc")
    with TemporaryDirectory(prefix="shmbridge-demo-") as folder:
        parts = {"A small compiler asks: inline this function?": _ask(folder, compiler)}
        title = "A real compiler asks: clang, unmodified"
        parts[title] = _clang(folder, clang) if clang else iter(["No clang: apt install clang."])
        for title, lines in parts.items():
            click.secho(f"\n{title}", fg="cyan", bold=True)
            for line in lines:
                click.echo(f"  {line}")
    click.echo("\nNext: shmbridge serve --help, shmbridge run --help, docs/quickstart.md")

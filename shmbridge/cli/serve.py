"""shmbridge serve: answers compilers with a model, until Ctrl-C."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console

from shmbridge._host.batch import Batch
from shmbridge._host.host import MAX_WAIT, Host
from shmbridge._host.onnx import OnnxModel
from shmbridge._host.service import Model, Question, Service, logger
from shmbridge._runner.runner import connect, handle_of
from shmbridge._urls.options import WAITS, HostOptions
from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._model import load_python
from shmbridge.cli._option_types import EXISTING_FILE, FILE, Bytes
from shmbridge.cli._signals import handle
from shmbridge.cli._text import Lines
from shmbridge.errors import ShmbridgeError
from shmbridge.hosts.llvm import LlvmHost


class Counted(Service):
    """A service that counts its questions, and that signals end."""

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(model, **options)
        self._answering = False
        self.stopping = False
        self.requests = 0
        self.began = self.ended = (
            0.0  # time.monotonic() of the first question and of the last answer
        )

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """For signal.signal: ends the service once the question under way has its answer; a second signal, at once."""
        if not self._answering or self.stopping:
            raise KeyboardInterrupt
        self.stopping = True

    def answer(self, question: Question) -> None:
        """As `Service.answer`."""
        self._answering = True
        self.began = self.began or time.monotonic()
        self.requests += len(question) if isinstance(question, Batch) else 1
        super().answer(question)
        self.ended = time.monotonic()
        self._answering = False

    def answered(self, requests: int) -> None:
        """So many have been, by now, elsewhere."""
        self.ended = time.monotonic()
        self.began = self.began or self.ended
        self.requests += requests

    def summary(self) -> str:
        """How many requests and errors, and how fast."""
        seconds = self.ended - self.began
        rate = f", {self.requests / seconds:.0f} per second" if seconds > 0 else ""
        return f"{self.requests} requests, {self.errors} errors{rate}"


def log_to_stdout(verbose: bool) -> None:
    """What the model raises is shown there, with tracebacks if verbose."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Lines(verbose))
    logger.addHandler(handler)


def _introduce(out: Console, host: Host, model: Model, what: str, given: str, end: str) -> None:
    out.print(
        f"serving [bold]{escape(what)}[/] at [bold green]{escape(host.url)}[/] ({escape(end)})",
        soft_wrap=True,
    )
    if isinstance(model, OnnxModel):
        out.print(f"  expects {escape(model.expects)}", soft_wrap=True)
        out.print(f"  advises {escape(', '.join(map(str, model.outputs)))}", soft_wrap=True)
    if isinstance(host, LlvmHost):
        out.print(
            f"  clang   {escape(' '.join(host.flags('clang', *host.decisions or ['inline'])))}",
            soft_wrap=True,
        )
        return
    if host.url.startswith("grpc:") and "role=client" in host.url:
        out.print(
            "  calls   compilers that open grpc://HOST:PORT?role=server, at the addresses above",
            soft_wrap=True,
        )
        return
    full, before = host.url, ""
    if host.url.startswith("grpc:"):
        from shmbridge._grpc.options import client_query

        query, before = client_query(given), "; before that, once: shmbridge embed"
        if query is None:
            out.print(
                "  TLS     compilers add ?ca=FILE to this URL: the certificate of who signed this host's",
                soft_wrap=True,
            )
            if "ca=" in given:
                out.print(
                    "          and &cert=FILE&key=FILE: one of their own, signed by whom this host trusts",
                    soft_wrap=True,
                )
            return
        full += query
    url, name = escape(full), escape(full.removeprefix("shm://"))
    variable = f"SHMBRIDGE_URL={escape(shlex.quote(full))}"
    out.print(
        f'  C       shmb_open("{url}", NULL, &r), or shmb_open(NULL, …) with {variable}{before}',
        soft_wrap=True,
    )
    out.print(f'  Python  shmbridge.connect("{name}").evaluate({{…}})', soft_wrap=True)


@click.command()
@click.argument("name")
@click.option(
    "--onnx",
    metavar="FILE",
    type=EXISTING_FILE,
    help="An ONNX model: its input names are the features'; its only output is called advice.",
)
@click.option(
    "--python",
    "function",
    metavar="MODULE:FUNCTION",
    help="A function from a mapping of features to advice; the current directory is searched first. Or in a file: "
    "/home/me/policy.py:advise.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1),
    metavar="N",
    help="Answer up to N runners at once; the arrays have one more dim in front.  [default: --pad-to's N, else 1]",
)
@click.option(
    "--max-wait",
    type=click.FloatRange(0),
    default=MAX_WAIT,
    show_default=True,
    metavar="SECONDS",
    help="How long a batch waits for more requests.",
)
@click.option(
    "--pad-to",
    type=click.IntRange(1),
    metavar="N",
    help="Always compute on N rows, so that a request's numbers do not depend on how many others came with it.",
)
@click.option(
    "--log",
    "log_path",
    metavar="FILE",
    type=FILE,
    help="Append every decision, as a line of JSON: time, features, advice or error.",
)
@click.option(
    "--record",
    "record_path",
    metavar="FILE",
    type=FILE,
    help="Keep features and advice in LLVM's training log format, for training and for shmbridge replay.",
)
@click.option(
    "--channels",
    type=click.IntRange(1, 256),
    default=HostOptions.channels,
    show_default=True,
    help="Runners at once.",
)
@click.option(
    "--slots",
    type=click.Choice(["2", "4", "8", "16", "32"]),
    default=str(HostOptions.slots),
    show_default=True,
    help="Messages under way for each runner.",
)
@click.option(
    "--request-bytes",
    type=Bytes(),
    default=HostOptions.request_bytes,
    show_default=True,
    help="Room for one request.",
)
@click.option(
    "--advice-bytes",
    type=Bytes(),
    default=HostOptions.advice_bytes,
    show_default=True,
    help="Room for one advice.",
)
@click.option(
    "--header-bytes",
    type=Bytes(),
    default=HostOptions.header_bytes,
    show_default=True,
    help="Room for names and dtypes.",
)
@click.option(
    "--wait",
    type=click.Choice(list(WAITS)),
    default=HostOptions.wait,
    show_default=True,
    help="How to wait for requests: spin as long as it pays, then sleep; always spin; always sleep.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="How long an answer may take, for compilers that have no deadline. inf: no limit.  "
    "[default: 10]",
)
@click.option(
    "--until-idle",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="End after so long without any runner.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads of ONNX Runtime.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show the traceback of what the model raises, once for each kind.",
)
@background_option
def serve(
    name: str,
    onnx: Path | None,
    function: str | None,
    max_batch: int | None,
    max_wait: float,
    pad_to: int | None,
    log_path: Path | None,
    record_path: Path | None,
    slots: str,
    until_idle: float | None,
    threads: int,
    verbose: bool,
    background: bool,
    **options: Any,
) -> None:
    """Answer compilers with a model at shm://NAME, or at any URL that has a host, until Ctrl-C.

    All room, channels x slots x bytes, is reserved at once in /dev/shm.
    """
    if (onnx is None) == (function is None):
        raise click.UsageError("expected one model: --onnx FILE or --python MODULE:FUNCTION")
    max_batch = max_batch or pad_to or 1
    if pad_to and max_batch > pad_to:
        raise click.UsageError(
            f"--max-batch {max_batch} --pad-to {pad_to}: expected batches no larger than what they are padded to"
        )
    handle(signal.default_int_handler)
    answers = begin(name) if background else None
    log_to_stdout(verbose)
    out, batch = console(), max_batch > 1 or pad_to is not None
    model: Model
    if onnx:
        model = OnnxModel(onnx, threads, batch)
        if batch:
            model.check_batch(pad_to or max_batch, pad_to is not None)
    else:
        model = load_python(str(function))
    with ExitStack() as stack:
        service = Counted(model, pad_to=pad_to, log=log_path, record=record_path)
        stack.enter_context(service)
        # Some hosts have no channels.
        chosen = {
            key: value for key, value in options.items() if value != getattr(HostOptions, key)
        }
        host = stack.enter_context(Host(name, slots=int(slots), until_idle=until_idle, **chosen))
        try:
            _introduce(
                out,
                host,
                model,
                onnx.name if onnx else str(function),
                name,
                how_to_end(name, background),
            )
            if answers:
                answers()
            handle(service.interrupt)
            if onnx and not (batch or log_path or record_path):
                with suppress(ShmbridgeError):  # then Python's answers all
                    runner = stack.enter_context(
                        connect(f"onnx://{onnx.resolve()}?threads={threads}")
                    )
                    host.answer_by(handle_of(runner), service.answered)
            for question in host.batches(max_batch, max_wait) if batch else host:
                service.answer(question)
                if service.stopping:
                    break
        except KeyboardInterrupt:
            pass
        handle(signal.SIG_IGN)  # it is ending: let it
        host.close()
        out.print(service.summary())

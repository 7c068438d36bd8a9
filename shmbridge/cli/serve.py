"""shmbridge serve: answers compilers with a model, until Ctrl-C."""

from __future__ import annotations

import inspect
import re
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from shmbridge.batch import Batch
from shmbridge.cli.console import console
from shmbridge.cli.log import DecisionLog, entry
from shmbridge.cli.model import Model, OnnxModel, Padded, load_python, named
from shmbridge.errors import InvalidError
from shmbridge.host import MAX_WAIT, WAITS, Host
from shmbridge.hosts.llvm import LlvmHost
from shmbridge.request import Request
from shmbridge.training_log import LogWriter, recorded

SHOWN_ERRORS = 5  # different ones
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(Host.__init__).parameters.items()
}


class Bytes(click.ParamType):  # type: ignore[type-arg,unused-ignore] # click < 8.4 has it without arguments
    """A number of bytes, for one 65536, 64K or 1M."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+)([KMG]?)", str(value))
        if not match or not int(match[1]):
            self.fail(
                f"{value!r}: expected a number of bytes, for one 65536, 64K or 1M", param, ctx
            )
        return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


class Service:
    """Answers questions with a model and counts them."""

    def __init__(self, model: Model, log: DecisionLog | None, out: Console) -> None:
        self._model = model
        self._log = log
        self._out = out
        self._errors_shown: set[str] = set()
        self._answering = False
        self.stopping = False
        self.requests = 0
        self.errors = 0
        self.began = self.ended = (
            0.0  # time.monotonic() of the first question and of the last answer
        )

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """For signal.signal: ends the service once the question under way has its answer; a second signal, at once."""
        if not self._answering or self.stopping:
            raise KeyboardInterrupt
        self.stopping = True

    def answer(self, question: Request | Batch) -> None:
        """Replies with the model's advice, or with its error."""
        self._answering = True
        self._answer(question)
        self._answering = False

    def _answer(self, question: Request | Batch) -> None:
        requests = question.requests if isinstance(question, Batch) else [question]
        self.began = self.began or time.monotonic()
        self.requests += len(requests)
        features = [entry(request) for request in requests] if self._log else []
        try:
            advice = self._model(question)
            if isinstance(advice, Mapping):
                question.reply(**advice)
            else:
                question.reply(_plain(advice))
        except Exception as error:
            self._fail(question, error, features)
        else:
            for i, sent in enumerate(features):
                values = named(advice)
                row = (
                    {name: rows[i] for name, rows in values.items()}
                    if isinstance(question, Batch)
                    else values
                )
                self._write(sent, len(requests), advice=entry(row))
        self.ended = time.monotonic()

    def _fail(self, question: Request | Batch, error: Exception, features: list[Any]) -> None:
        with suppress(
            InvalidError
        ):  # answered already: what could not be sent was told to the runner
            question.fail(error)
        text = f"{type(error).__name__}: {error}"
        self.errors += question.size if isinstance(question, Batch) else 1
        for sent in features:
            self._write(sent, len(features), error=text)
        if text not in self._errors_shown and len(self._errors_shown) < SHOWN_ERRORS:
            self._errors_shown.add(text)
            self._out.print(f"[red]error, told to the runner:[/] {escape(text)}", soft_wrap=True)

    def _write(self, features: Any, size: int, **outcome: Any) -> None:
        assert self._log
        self._log.write(features, **outcome, **({"batch": size} if size > 1 else {}))

    def summary(self) -> str:
        """How many requests and errors, and how fast."""
        seconds = self.ended - self.began
        rate = f", {self.requests / seconds:.0f} per second" if seconds > 0 else ""
        return f"{self.requests} requests, {self.errors} errors{rate}"


def _plain(advice: Any) -> Any:
    """numpy's int64 and float64 scalars as Python's numbers: the same on the way, and quicker."""
    scalar = isinstance(advice, (np.ndarray, np.generic)) and advice.ndim == 0
    return advice.item() if scalar and advice.dtype in (np.int64, np.float64) else advice


def handle(handler: Any) -> None:
    """For all signals that may end the program: nothing may be left in /dev/shm."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _introduce(out: Console, host: Host, model: Model, what: str) -> None:
    out.print(
        f"serving [bold]{escape(what)}[/] at [bold green]{escape(host.url)}[/] (Ctrl-C ends)",
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
    url, name = escape(host.url), escape(host.url.removeprefix("shm://"))
    variable = f"SHMBRIDGE_URL={escape(shlex.quote(host.url))}"
    out.print(
        f'  C       shmb_open("{url}", NULL, &r), or shmb_open(NULL, …) with {variable}',
        soft_wrap=True,
    )
    out.print(f'  Python  shmbridge.connect("{name}").evaluate({{…}})', soft_wrap=True)


@click.command()
@click.argument("name")
@click.option(
    "--onnx",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An ONNX model: its input names are the features'; its only output is called advice.",
)
@click.option(
    "--python",
    "function",
    metavar="MODULE:FUNCTION",
    help="A function from a mapping of features to advice; the current directory is searched first.",
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
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append every decision, as a line of JSON: time, features, advice or error.",
)
@click.option(
    "--record",
    "record_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep features and advice in LLVM's training log format, for training and for shmbridge replay.",
)
@click.option(
    "--channels",
    type=click.IntRange(1, 256),
    default=DEFAULTS["channels"],
    show_default=True,
    help="Runners at once.",
)
@click.option(
    "--slots",
    type=click.Choice(["2", "4", "8", "16", "32"]),
    default=str(DEFAULTS["slots"]),
    show_default=True,
    help="Messages under way for each runner.",
)
@click.option(
    "--request-bytes",
    type=Bytes(),
    default=DEFAULTS["request_bytes"],
    show_default=True,
    help="Room for one request.",
)
@click.option(
    "--advice-bytes",
    type=Bytes(),
    default=DEFAULTS["advice_bytes"],
    show_default=True,
    help="Room for one advice.",
)
@click.option(
    "--header-bytes",
    type=Bytes(),
    default=DEFAULTS["header_bytes"],
    show_default=True,
    help="Room for names and dtypes.",
)
@click.option(
    "--wait",
    type=click.Choice(list(WAITS)),
    default=DEFAULTS["wait"],
    show_default=True,
    help="How to wait for requests: spin as long as it pays, then sleep; always spin; always sleep.",
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
    out, batch = console(), max_batch > 1 or pad_to is not None
    model: Model
    if onnx:
        model = OnnxModel(onnx, threads, batch)
        if batch:
            model.check_batch(pad_to or max_batch, pad_to is not None)
    else:
        model = load_python(str(function))
    with ExitStack() as stack:
        log = stack.enter_context(closing(DecisionLog(log_path))) if log_path else None
        answer: Model = Padded(model, pad_to) if pad_to else model
        if record_path:
            warn = partial(out.print, style="yellow", markup=False, soft_wrap=True)
            answer = recorded(answer, stack.enter_context(LogWriter(record_path, warn=warn)))
        chosen = {
            key: value for key, value in options.items() if value != DEFAULTS[key]
        }  # some hosts have no channels
        host = stack.enter_context(Host(name, slots=int(slots), until_idle=until_idle, **chosen))
        service = Service(answer, log, out)
        try:
            _introduce(out, host, model, onnx.name if onnx else str(function))
            questions: Iterator[Request | Batch] = iter(
                host.batches(max_batch, max_wait) if batch else host
            )
            handle(service.interrupt)
            for question in questions:
                service.answer(question)
                if service.stopping:
                    break
        except KeyboardInterrupt:
            pass
        handle(signal.SIG_IGN)  # it is ending: let it
        host.close()
        out.print(service.summary())

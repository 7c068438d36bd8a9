"""shmbridge serve: answers compilers with a model, until Ctrl-C."""

import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from shmbridge import Batch, Host
from shmbridge._bridge.names import bridge_name
from shmbridge._host.service import Model, Question, Service
from shmbridge._native import lib
from shmbridge._runner.runner import handle_of
from shmbridge._urls.options import HostOptions, split
from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._model import OnnxModel, load_python
from shmbridge.cli._option_types import (
    EXISTING_FILE,
    FILE,
    HOST,
    argument,
    given,
    host_options,
    option,
    takes,
)
from shmbridge.cli._processes import on_signals, until_signal
from shmbridge.cli._text import log_to
from shmbridge.cli._workers import WorkerHost, become_worker
from shmbridge.hosts.llvm import LlvmHost


class Counted(Service):
    """A service that counts its questions, and that signals can end."""

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(model, **options)
        self._answering = False
        self.requests = 0

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """For signal.signal: ends the service once the question under way has its answer; a second
        signal, at once."""
        if not self._answering or self.stopping:
            raise KeyboardInterrupt
        self.stopping = True

    def answer(self, question: Question) -> None:
        """As `Service.answer`."""
        self._answering = True
        self.requests += len(question) if isinstance(question, Batch) else 1
        super().answer(question)
        self._answering = False

    def answered(self, requests: int) -> None:
        """Counts requests that were answered in C."""
        self.requests += requests


def _inputs_and_calls(host: Host, model: Model) -> Iterator[str]:
    """The model's inputs, and how compilers ask the host."""
    if isinstance(model, OnnxModel):
        yield f"expects {', '.join(map(str, model.inputs.values()))}"
    if isinstance(host, LlvmHost):
        yield f"clang   {' '.join(host.flags('clang', *host.decisions or ['inline']))}"
    elif split(host.url)[1].get("role") == "client":
        yield "calls   compilers that open grpc://HOST:PORT?role=server, at the addresses above"
    else:
        url, name = host.url, host.url.removeprefix("shm://")
        before = "; before that, once: shmbridge embed" if url.startswith("grpc:") else ""
        variable = f"SHMBRIDGE_URL={shlex.quote(url)}"
        yield f'C       shmb_open("{url}", NULL, &r), or shmb_open(NULL, …) with {variable}{before}'
        yield f'Python  shmbridge.connect("{name}").evaluate({{…}})'


@dataclass(frozen=True)
class Options:
    name: str = argument()
    onnx: Path | None = option(
        'An ONNX model. Its inputs have the features\' names; a single output becomes "advice".',
        type=EXISTING_FILE,
    )
    function: str | None = option(
        "A function that takes a mapping of features and returns advice. The current directory is "
        "searched first. You can also give a file: /home/me/policy.py:advise.",
        "--python",
        metavar="MODULE:FUNCTION",
    )
    max_batch: int = option(
        "Answer up to N runners in one call; the arrays have an additional first dim.",
        type=click.IntRange(1),
        default=1,
        metavar="N",
    )
    max_wait: float = option(
        "How long to wait for more requests in a batch.",
        type=click.FloatRange(0),
        default=0,
        metavar="SECONDS",
    )
    record: Path | None = option(
        "Write features and advice in LLVM's training log format.",
        type=FILE,
    )
    threads: int = option("The number of ONNX Runtime threads.", type=click.IntRange(1), default=1)
    verbose: bool = option(
        "Show the traceback of each kind of exception in the model once.", "-v", "--verbose"
    )
    workers: int = option(
        "Serve in N processes, for a model that needs more than one core. Each loads the model "
        "and has its own channels. A compiler connects to the one with the fewest. Only "
        "shm://NAME.",
        type=click.IntRange(1, lib.MAX_WORKERS),
        default=1,
        metavar="N",
    )

    def check(self, host: Mapping[str, Any]) -> None:
        """Raises UsageError for options that conflict. host: those of `Host` that are given."""
        if (self.onnx is None) == (self.function is None):
            raise click.UsageError("expected one model: --onnx FILE or --python MODULE:FUNCTION")
        if self.onnx and self.max_batch > 1:
            raise click.UsageError("--max-batch: expected --python, as --onnx answers one by one")
        if self.workers > 1:
            self._check_workers(host)

    def _check_workers(self, host: Mapping[str, Any]) -> None:
        where, given = split(self.name)
        if "://" in where and not where.startswith("shm://"):
            raise click.UsageError(
                f"--workers {self.workers} at {where}: expected shm://NAME, as other kinds of host "
                "have one process"
            )
        idle = HostOptions(**host).with_options(given).until_idle
        if idle is not None or self.record:
            raise click.UsageError(
                f"--workers {self.workers} {'--record' if self.record else '--until-idle'}: "
                "expected only one of them"
            )


def _introduction(host: Host, model: Model, options: Options, end: str) -> Iterator[str]:
    what = escape(options.onnx.name if options.onnx else str(options.function))
    workers = f" with {options.workers} workers" if options.workers > 1 else ""
    yield f"serving [bold]{what}[/] at [bold green]{escape(host.url)}[/]{workers} ({escape(end)})"
    for line in _inputs_and_calls(host, model):
        yield f"  {escape(line)}"


def _answer(options: Options, host: Host, service: Counted) -> None:
    """Until the host closes or a signal ends the service."""
    model = service.model
    if isinstance(model, OnnxModel) and not options.record:
        host.answer_by(handle_of(model.runner), service.answered)
    batches = host.batches(options.max_batch, options.max_wait)
    with host._answering_with(service):
        for question in batches if options.max_batch > 1 else host:
            service.answer(question)
            if service.stopping:
                break


@click.command()
@takes(Options)
@host_options(*HOST)
@background_option
def serve(options: Options, background: bool, **room: Any) -> None:
    """Serve a model to compilers until Ctrl-C.

    NAME is that of a bridge in shared memory, shm://NAME, or another host URL. It may have further
    options of the host, such as NAME?slots=16&wait=spin. Memory for two messages
    of each channel and direction is reserved in /dev/shm at the start.
    """
    room = given(room)
    options.check(room)
    answers = begin(options.name, background)
    worker = None
    make_host: Callable[..., Host] = Host
    if options.workers > 1:
        name = bridge_name(options.name)
        worker = become_worker(name, options.workers, answers)
        answers, make_host = worker.answers, partial(WorkerHost, worker)
    log_to(logging.StreamHandler(sys.stdout), options.verbose)
    onnx, out = options.onnx, console()
    model = OnnxModel(onnx, options.threads) if onnx else load_python(str(options.function))
    service = Counted(model, record=options.record)
    with service, make_host(options.name, **room) as host:
        with until_signal():
            if worker is None or worker.introduces:
                end = how_to_end(options.name, background)
                for line in _introduction(host, model, options, end):
                    out.print(line, soft_wrap=True)
            answers()
            on_signals(service.interrupt)
            _answer(options, host, service)
        host.close()
        who = f"worker {worker.number}: " if worker else ""
        out.print(f"{who}{service.requests} requests, {service.errors} errors")

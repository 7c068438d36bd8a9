"""shmbridge relay and record: hosts that pass questions on to another one."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import FILE, ROOM, given, host_options
from shmbridge.cli._processes import until_signal
from shmbridge.hosts._relay import Relay
from shmbridge.logs import LogWriter


@click.command()
@click.argument("host_url")
@click.argument("runner_url")
@host_options(*ROOM)
@background_option
def relay(**options: Any) -> None:
    """Pass compilers' questions on to a model elsewhere, until Ctrl-C.

    It answers compilers at HOST_URL with the advice of the model at RUNNER_URL.

    The compiler then needs only shared memory, and the model can be anywhere that a runner can
    reach, for example on another machine:

    \b
        shmbridge relay shm://inliner grpc://trainer:50051
        SHMBRIDGE_URL=shm://inliner clang …

    Both may be URLs of any kind. RUNNER_URL must answer within its connect_timeout (10 s) when the
    relay starts. If it dies later, questions fail until it is back; with retries=N in RUNNER_URL
    they wait. Errors are forwarded unchanged. If RUNNER_URL is a host on this machine, the defaults
    of the sizes are its own.
    """
    _forward("relaying [bold green]{}[/] to [bold]{}[/]", **options)


@click.command()
@click.argument("runner_url", metavar="TARGET")
@click.argument("host_url", metavar="LISTEN")
@click.argument("log", type=FILE)
@host_options(*ROOM)
@background_option
def record(**options: Any) -> None:
    """Relay compilers' questions to a host, and write them to a log.

    It runs until Ctrl-C. TARGET is the URL that a compiler would open, for example shm://inliner.
    LISTEN is the name or URL of a new host, which the compilers open instead. TARGET must answer
    within 10 s, or its connect_timeout. If it is a host on this machine, the defaults of the sizes
    are its own. LOG has LLVM's training log format: the features, followed by the advice. Questions
    with other names, dtypes or shapes go to LOG.2, LOG.3, …. Existing files are not changed.

    To record without a second host: shmbridge serve --record LOG.
    """
    _forward("recording [bold]{1}[/] at [bold green]{0}[/]", **options)


def _forward(
    title: str,
    host_url: str,
    runner_url: str,
    background: bool,
    log: Path | None = None,
    **room: Any,
) -> None:
    """title: the first line, with places for both URLs."""
    answers = begin(host_url, background)
    out, end = console(), escape(how_to_end(host_url, background))

    def warn(text: str) -> None:
        out.print(f"[yellow]{escape(text)}[/]", soft_wrap=True)

    with LogWriter(log, warn=warn) if log else nullcontext() as writer:
        with Relay(runner_url, host_url, log=writer, **given(room)) as between, until_signal():
            urls = escape(between.host.url), escape(runner_url)
            out.print(f"{title.format(*urls)} ({end})", soft_wrap=True)
            answers()
            between.serve()
        said = f"{between.asked} questions passed on, {between.errors} answered with an error"
        if writer:
            files = ", ".join(map(str, writer.paths)) or "nothing"
            said += f"; {writer.recorded} recorded, {writer.left_out} left out: {files}"
        out.print(escape(said), soft_wrap=True)

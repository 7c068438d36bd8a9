"""shmbridge relay: joins a host of any kind to a runner of any kind."""

from __future__ import annotations

import signal
from typing import Any

import click

from shmbridge._urls.options import HostOptions
from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import Bytes, in_letters
from shmbridge.cli._signals import handle
from shmbridge.hosts._relay import Relay


@click.command()
@click.argument("host_url")
@click.argument("runner_url")
@click.option(
    "--channels",
    type=click.IntRange(1, 256),
    help=f"Compilers at once.  [default: {HostOptions.channels}; 1 for pipes]",
)
@click.option(
    "--request-bytes",
    type=Bytes(),
    help=f"Room for one request.  [default: {in_letters(HostOptions.request_bytes)}]",
)
@click.option(
    "--advice-bytes",
    type=Bytes(),
    help=f"Room for one advice.  [default: {in_letters(HostOptions.advice_bytes)}]",
)
@background_option
def relay(host_url: str, runner_url: str, background: bool, **options: Any) -> None:
    """Answer compilers at HOST_URL with what RUNNER_URL advises, until Ctrl-C.

    So a compiler speaks shared memory alone, and the model is wherever a runner finds it, for one on another machine:

    \b
        shmbridge relay shm://inliner grpc://trainer:50051
        SHMBRIDGE_URL=shm://inliner clang …

    Both may be URLs of any kind. A model in a file (aot://, onnx://, tflite://) answers in a loop in C. RUNNER_URL must answer at the start, within its connect_timeout (10 s). When what is behind it dies, questions
    fail until it is there again; with retries=N in RUNNER_URL they wait for that. Errors go on as they are.
    """
    handle(signal.default_int_handler)
    answers = begin(host_url) if background else None
    out, end = console(), escape(how_to_end(host_url, background))
    given = {name: value for name, value in options.items() if value is not None}
    with Relay(runner_url, host_url, **given) as between:
        try:
            out.print(
                f"relaying [bold green]{escape(between.host.url)}[/] to [bold]{escape(runner_url)}[/] ({end})",
                soft_wrap=True,
            )
            if answers:
                answers()
            between.serve()
        except KeyboardInterrupt:
            pass
        handle(signal.SIG_IGN)  # it is ending: let it
    out.print(
        f"{between.asked} questions passed on, {between.errors} of them answered with an error",
        soft_wrap=True,
    )

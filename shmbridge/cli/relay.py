"""shmbridge relay: joins a host of any kind to a runner of any kind."""

from __future__ import annotations

from typing import Any

import click

from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import given, room_options
from shmbridge.cli._signals import until_signal
from shmbridge.hosts._relay import Relay


@click.command()
@click.argument("host_url")
@click.argument("runner_url")
@room_options
@background_option
def relay(host_url: str, runner_url: str, background: bool, **options: Any) -> None:
    """Answer compilers at HOST_URL with the advice of the model at RUNNER_URL, until Ctrl-C.

    The compiler then needs only shared memory, and the model can be anywhere that a runner can
    reach, for example on another machine:

    \b
        shmbridge relay shm://inliner grpc://trainer:50051
        SHMBRIDGE_URL=shm://inliner clang …

    Both may be URLs of any kind. A model in a file (aot://, onnx://, tflite://) answers in a C
    loop. RUNNER_URL must answer within its connect_timeout (10 s) when the relay starts. If it dies
    later, questions fail until it is back; with retries=N in RUNNER_URL they wait. Errors are
    forwarded unchanged. If RUNNER_URL is a host on this machine, the defaults of the sizes are its
    own.
    """
    answers = begin(host_url, background)
    out, end = console(), escape(how_to_end(host_url, background))
    with Relay(runner_url, host_url, **given(options)) as between, until_signal():
        url, target = escape(between.host.url), escape(runner_url)
        out.print(f"relaying [bold green]{url}[/] to [bold]{target}[/] ({end})", soft_wrap=True)
        answers()
        between.serve()
    out.print(
        f"{between.asked} questions passed on, {between.errors} of them answered with an error",
        soft_wrap=True,
    )

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
    """Answer compilers at HOST_URL with what RUNNER_URL advises, until Ctrl-C.

    So a compiler speaks shared memory alone, and the model is wherever a runner finds it, for
    example on another machine:

    \b
        shmbridge relay shm://inliner grpc://trainer:50051
        SHMBRIDGE_URL=shm://inliner clang …

    Both may be URLs of any kind. A model in a file (aot://, onnx://, tflite://) answers in a loop
    in C. RUNNER_URL must answer at the start, within its connect_timeout (10 s). When what is
    behind it dies, questions fail until it is there again; with retries=N in RUNNER_URL they wait
    for that. Errors go on as they are. If RUNNER_URL is a host on this machine, its channels and
    room are the defaults.
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

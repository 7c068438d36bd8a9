"""shmbridge relay: joins a host of any kind to a runner of any kind."""

from __future__ import annotations

import signal
from typing import Any

import click
from rich.markup import escape

from shmbridge.cli.console import console
from shmbridge.cli.serve import Bytes, handle
from shmbridge.tap import Tap


@click.command()
@click.argument("host_url")
@click.argument("runner_url")
@click.option(
    "--channels", type=click.IntRange(1, 256), help="Compilers at once.  [default: 16; 1 for pipes]"
)
@click.option("--request-bytes", type=Bytes(), help="Room for one request.  [default: 1M]")
@click.option("--advice-bytes", type=Bytes(), help="Room for one advice.  [default: 64K]")
def relay(host_url: str, runner_url: str, **options: Any) -> None:
    """Answer compilers at HOST_URL with what RUNNER_URL advises, until Ctrl-C.

    So a compiler speaks shared memory alone, and the model is wherever a runner finds it, for one on another machine:

    \b
        shmbridge relay shm://inliner grpc://trainer:50051
        SHMBRIDGE_URL=shm://inliner clang …

    Both may be URLs of any kind. RUNNER_URL must answer at the start, within its connect_timeout. When what is behind it dies, questions
    fail until it is there again; with retries=N in RUNNER_URL they wait for that. Errors go on as they are.
    """
    handle(signal.default_int_handler)
    out = console()
    given = {name: value for name, value in options.items() if value is not None}
    with Tap(runner_url, host_url, **given) as tap:
        try:
            out.print(
                f"relaying [bold green]{escape(tap.host.url)}[/] to [bold]{escape(runner_url)}[/] (Ctrl-C ends)",
                soft_wrap=True,
            )
            tap.serve()
        except KeyboardInterrupt:
            pass
        handle(signal.SIG_IGN)  # it is ending: let it
    out.print(
        f"{tap.asked} questions passed on, {tap.errors} of them answered with an error",
        soft_wrap=True,
    )

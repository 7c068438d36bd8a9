"""shmbridge record: passes questions on to a host, and keeps them in a training log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import FILE, given, room_options
from shmbridge.cli._signals import until_signal
from shmbridge.hosts._relay import Relay
from shmbridge.logs import LogWriter


@click.command()
@click.argument("target")
@click.argument("listen")
@click.argument("log", type=FILE)
@room_options
@background_option
def record(target: str, listen: str, log: Path, background: bool, **options: Any) -> None:
    """Forward compilers' questions at LISTEN to the host at TARGET and write them to LOG, until
    Ctrl-C.

    TARGET is the URL that a compiler would open, for example shm://inliner. LISTEN is the name or
    URL of a new host, which the compilers open instead. TARGET must answer within 10 s, or its
    connect_timeout. If it is a host on this machine, the defaults of the sizes are its own. LOG has
    LLVM's training log format: the features, followed by the advice. Questions with other names,
    dtypes or shapes go to LOG.2, LOG.3, …. Existing files are not changed.

    To play it back: shmbridge replay LOG TARGET. To record without a second host: shmbridge serve
    --record LOG.
    """
    answers = begin(listen, background)
    out, end = console(), escape(how_to_end(listen, background))

    def warn(text: str) -> None:
        out.print(f"[yellow]{escape(text)}[/]", soft_wrap=True)

    with LogWriter(log, warn=warn) as writer:
        with Relay(target, listen, log=writer, **given(options)) as relay, until_signal():
            asked, url = escape(target), escape(relay.host.url)
            out.print(f"recording [bold]{asked}[/] at [bold green]{url}[/] ({end})", soft_wrap=True)
            answers()
            relay.serve()
        out.print(summary(writer, relay.errors), soft_wrap=True)


def summary(log: LogWriter, errors: int) -> str:
    """What was recorded, and where."""
    files = ", ".join(map(str, log.paths)) or "nothing"
    return escape(
        f"{log.recorded} recorded, {log.left_out} left out, {errors} errors passed on: {files}"
    )

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
    """Pass compilers' questions at LISTEN on to the host at TARGET, and keep them in LOG, until
    Ctrl-C.

    TARGET is what a compiler would open, for example shm://inliner; LISTEN is a new host's name or
    URL, which the compilers open instead. TARGET has 10 s to be there, or its connect_timeout. If
    it is a host on this machine, its channels and room are the defaults. LOG has LLVM's training
    log format: features, then the advice as the last of them. Questions of other names, dtypes or
    shapes go to LOG.2, LOG.3, …; files that exist are left alone.

    To play it back: shmbridge replay LOG TARGET. Without a second host: shmbridge serve --record
    LOG.
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

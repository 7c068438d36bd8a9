"""shmbridge record: stands between compilers and a host, and keeps what was asked and advised in a training log."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from shmbridge.cli._background import background_option, begin, how_to_end
from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import FILE, Bytes
from shmbridge.cli._signals import handle
from shmbridge.hosts._relay import Relay
from shmbridge.logs import LogWriter


@click.command()
@click.argument("target")
@click.argument("listen")
@click.argument("log", type=FILE)
@click.option(
    "--channels",
    type=click.IntRange(1, 256),
    help="Runners at once.  [default: TARGET's; 1 for pipes]",
)
@click.option("--request-bytes", type=Bytes(), help="Room for one request.  [default: TARGET's]")
@click.option("--advice-bytes", type=Bytes(), help="Room for one advice.  [default: TARGET's]")
@background_option
def record(target: str, listen: str, log: Path, background: bool, **options: int | None) -> None:
    """Pass compilers' questions at LISTEN on to the host at TARGET, and keep them in LOG, until Ctrl-C.

    TARGET is what a compiler would open, for one shm://inliner; LISTEN is a new host's name or URL, which the compilers
    open instead. TARGET has 10 s to be there, or its connect_timeout. LOG has LLVM's training log format: features, then the advice as the last of them. Questions of other
    names, dtypes or shapes go to LOG.2, LOG.3, …; files that exist are left alone.

    To play it back: shmbridge replay LOG TARGET. Without a second host: shmbridge serve --record LOG.
    """
    handle(signal.default_int_handler)
    answers = begin(listen) if background else None
    out, end = console(), escape(how_to_end(listen, background))

    def warn(text: str) -> None:
        out.print(f"[yellow]{escape(text)}[/]", soft_wrap=True)

    with LogWriter(log, warn=warn) as writer:
        given = {name: value for name, value in options.items() if value is not None}
        with Relay(target, listen, log=writer, **given) as relay:
            try:
                out.print(
                    f"recording [bold]{escape(target)}[/] at [bold green]{relay.host.url}[/] ({end})",
                    soft_wrap=True,
                )
                if answers:
                    answers()
                relay.serve()
            except KeyboardInterrupt:
                pass
            handle(signal.SIG_IGN)  # it is ending: let it
        out.print(summary(writer, relay.errors), soft_wrap=True)


def summary(log: LogWriter, errors: int) -> str:
    """What was recorded, and where."""
    files = ", ".join(map(str, log.paths)) or "nothing"
    return escape(
        f"{log.recorded} recorded, {log.left_out} left out, {errors} errors passed on: {files}"
    )

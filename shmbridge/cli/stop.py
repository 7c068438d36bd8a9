"""shmbridge stop: ends a host that runs in the background."""

from __future__ import annotations

import click

from shmbridge.cli import _background


@click.command()
@click.argument("name")
def stop(name: str) -> None:
    """End the host that was started at NAME with --background.

    It has a second to answer the question under way. One that does not end in a few seconds is
    killed.
    """
    log = _background.end(name)
    if log is None:
        raise click.ClickException(
            f'no host was started with --background at "{_background.key(name)}", or it has '
            "ended: shmbridge ls shows "
            "those that run; Ctrl-C ends one in the foreground"
        )
    click.echo(f"stopped {_background.key(name)}; its log is {log}")

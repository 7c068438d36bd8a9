"""shmbridge stop: ends a host that runs in the background."""

import click

from shmbridge.cli import _background


@click.command()
@click.argument("name")
def stop(name: str) -> None:
    """End the host that was started at NAME with --background.

    The host gets a second to answer the current question. If it does not end within a few seconds,
    it is killed.
    """
    log = _background.end(name)
    if log is None:
        raise click.ClickException(
            f'no host runs at "{_background.key(name)}" that was started with --background: '
            "shmbridge ls lists all hosts; Ctrl-C ends one in the foreground"
        )
    click.echo(f"stopped {_background.key(name)}" + (f"; its log is {log}" if log else ""))

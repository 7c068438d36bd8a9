"""shmbridge ls and gc: the bridges below /dev/shm, and what dead hosts left there."""

import tempfile
from collections.abc import Iterable
from typing import Literal

import click
from rich.table import Table

from shmbridge._bridge import names, overview, segment
from shmbridge._bridge.overview import BridgeInfo
from shmbridge._jobs import supervisor
from shmbridge.cli._console import console


def _table(bridges: Iterable[BridgeInfo]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("bridge", "state", "process", "channels", "served", "MiB"):
        side: Literal["left", "right"] = "left" if title in ("bridge", "state") else "right"
        table.add_column(title, justify=side, no_wrap=True)
    for bridge in bridges:
        attached = [channel for channel in bridge.channels if channel.state != "free"]
        state = "[green]alive[/]" if bridge.alive else "[red]dead[/]"
        taken = f"{len(attached)} of {len(bridge.channels)}"
        row = (str(bridge.served), f"{bridge.size / 2**20:.1f}")
        table.add_row(bridge.title, state, str(bridge.pid), taken, *row)
        for channel in attached:
            who = (f"  channel {channel.index}", channel.state, str(channel.pid))
            table.add_row(*who, "", str(channel.served), "", style="dim")
    return table


@click.command()
def ls() -> None:
    """List the bridges: state, channels, replies served.

    A bridge is dead if its host ended without closing it; shmbridge gc removes it. Channel states:
    attached (a runner uses it), refused (its runner violated the protocol).
    """
    bridges = overview.bridges()
    if bridges:
        console().print(_table(bridges))
    else:
        click.echo("no bridges; create one: shmbridge serve NAME …")


@click.command()
@click.argument("name", required=False)
def gc(name: str | None) -> None:
    """Remove and list the files of dead hosts.

    With NAME it removes only that host's files in /dev/shm, and a live host is an error. Without
    NAME it also removes the work folders of killed trainers in $TMPDIR. It never removes files of a
    live host or of another user.
    """
    removed = segment.gc(None if name is None else names.bridge_name(name))
    for file in removed:
        click.echo(f"removed {file}")
    for folder in [] if name else supervisor.remove_dead_folders(tempfile.gettempdir()):
        removed.append(folder)
        click.echo(f"removed {folder}: a work folder")
    click.echo(
        f"{len(removed)} files removed"
        if removed
        else f"nothing to remove: no files of a dead host{f' named {name}' if name else ''}"
    )

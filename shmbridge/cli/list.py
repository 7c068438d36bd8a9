"""shmbridge ls and gc: the bridges below /dev/shm, and what dead hosts left there."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

import click
from rich.table import Table

from shmbridge._bridge import overview, segment
from shmbridge._bridge.overview import BridgeInfo, ChannelInfo
from shmbridge._jobs import supervisor
from shmbridge.cli._console import console

INTERVAL = 0.3  # seconds in which replies are counted

# A bridge, and the replies per second of its channels.
Seen: TypeAlias = tuple[BridgeInfo, list[float]]


def look() -> list[Seen]:
    """Every bridge, seen twice, with INTERVAL between."""
    started = time.monotonic()
    before = {(b.session, c.index): c.served for b in overview.bridges() for c in b.channels}
    if before:
        time.sleep(INTERVAL)
    elapsed = time.monotonic() - started

    def rate(bridge: BridgeInfo, channel: ChannelInfo) -> float:
        old = before.get((bridge.session, channel.index), channel.served)
        return max(0, channel.served - old) / elapsed

    return [(b, [rate(b, channel) for channel in b.channels]) for b in overview.bridges()]


def _table(seen: Iterable[Seen]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("bridge", "state", "process", "channels", "served", "per second", "MiB"):
        side: Literal["left", "right"] = "left" if title in ("bridge", "state") else "right"
        table.add_column(title, justify=side, no_wrap=True)
    for bridge, rates in seen:
        channels = zip(bridge.channels, rates, strict=True)
        attached = [(channel, rate) for channel, rate in channels if channel.state != "free"]
        state = "[green]alive[/]" if bridge.alive else "[red]dead[/]"
        taken = f"{len(attached)} of {len(bridge.channels)}"
        row = (str(bridge.served), f"{sum(rates):.0f}", f"{bridge.size / 2**20:.1f}")
        table.add_row(bridge.title, state, str(bridge.pid), taken, *row)
        for channel, rate in attached:
            served = ("", str(channel.served), f"{rate:.0f}", "")
            index = f"  channel {channel.index}"
            table.add_row(index, channel.state, str(channel.pid), *served, style="dim")
    return table


def _as_json(bridge: BridgeInfo, rates: list[float]) -> dict[str, Any]:
    pairs = zip(bridge.channels, rates, strict=True)
    channels = [{**asdict(channel), "rate": rate} for channel, rate in pairs]
    totals = {"served": bridge.served, "rate": sum(rates)}
    return {**asdict(bridge), "channels": channels, **totals}


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="One line of JSON, for programs; sizes in bytes."
)
def ls(as_json: bool) -> None:
    """List the bridges: state, channels, replies served and their rate.

    A bridge is dead if its host ended without closing it; shmbridge gc removes it. Channel states:
    attached (a runner uses it), refused (its runner violated the protocol).
    """
    seen = look()
    if as_json:
        click.echo(json.dumps([_as_json(*one) for one in seen]))
    elif seen:
        console().print(_table(seen))
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
    removed = segment.gc(None if name is None else segment.bridge_name(name))
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

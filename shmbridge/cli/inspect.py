"""shmbridge inspect: what each compiler of a bridge sends and gets, and what it waits for."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

import click

from shmbridge._bridge import names, overview
from shmbridge._bridge.overview import BridgeInfo, ChannelInfo, Sent
from shmbridge.errors import printable

RENEWED = 0.5  # seconds; a host that waits says so again every 0.1 s


@click.command()
@click.argument("name", required=False)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="A line of JSON for each host, for programs; times in seconds, sizes in bytes.",
)
def inspect(name: str | None, as_json: bool) -> None:
    """Show what each compiler at a host sends, gets and waits for.

    NAME is that of a bridge, shm://NAME; without it, all are shown. Use it when a compiler seems to
    hang. It reads the bridge once and does not disturb either side.
    Process ids and labels are those that the processes report, and are not checked.
    """
    chosen = None if name is None else names.bridge_name(name)
    bridges = overview.bridges(chosen)
    if not bridges and chosen is not None:
        raise click.ClickException(
            f"no host is named {chosen}, or it has another version: shmbridge ls lists all hosts"
        )
    if not bridges and not as_json:
        click.echo("no bridges")
    alive = {bridge.name for bridge in bridges if bridge.alive}
    for bridge in bridges:
        _show(bridge, as_json, others=bridge.name in alive)


def _show(bridge: BridgeInfo, as_json: bool, others: bool) -> None:
    """others: does another worker of its name live?"""
    channels = [
        (each, overview.sent(bridge, each.index, False), overview.sent(bridge, each.index, True))
        for each in bridge.channels
        if each.state != "free"
    ]
    if as_json:
        shown = [{**asdict(channel), "sends": a, "gets": b} for channel, a, b in channels]
        counts = {"served": bridge.served, "capacity": len(bridge.channels)}
        click.echo(json.dumps({**asdict(bridge), **counts, "channels": shown}, default=asdict))
        return
    end = "another one will take its place" if others else "shmbridge gc removes its files"
    state = _host(bridge) if bridge.alive else f"its host is dead; {end}"
    click.echo(f"{bridge.title}: {state}")
    for channel, sends, gets in channels:
        label = f", {printable(channel.label)}" if channel.label else ""
        click.echo(f"channel {channel.index}: {_process(channel)}{label}")
        click.echo(f"  {channel.served} replies; {_waiting(bridge, channel)}")
        click.echo(f"  sends {_fields(sends)}")
        click.echo(f"  gets  {_fields(gets)}")
    if not channels:
        click.echo(f"no compiler is connected (at most {len(bridge.channels)} can be)")


def _host(bridge: BridgeInfo) -> str:
    who = f"host {_process(bridge)}"
    if not bridge.looping:
        return f"{who}; its loop is not running"
    if _stopped(bridge):
        return f"{who}; it is stopped"
    if any(channel.waits for channel in bridge.channels) or bridge.since > RENEWED:
        return f"{who}; it is computing an answer"
    return f"{who}; it is waiting for questions"


def _waiting(bridge: BridgeInfo, channel: ChannelInfo) -> str:
    """What a compiler waits for, and why."""
    if channel.state == "refused":
        return "the host refused it because its messages violated the protocol"
    if not (channel.waits or channel.connects):
        last = f"; it last waited {channel.since:.1f} s ago" if channel.since else ""
        return f"it is computing, or will ask no more questions{last}"
    event = "a reply" if channel.waits else "the host to accept it"
    since = f", for {channel.since:.1f} s" if channel.since else ""
    waits = f"it is waiting for {event}{since}"
    if not bridge.alive:
        return f"{waits}: the host is dead"
    if _stopped(bridge):
        return f"{waits}: the host is stopped (kill -CONT {bridge.pid} resumes it)"
    if not bridge.looping:
        return f"{waits}: the host's loop is not running"
    return f"{waits}: the host's model is computing"


def _process(who: BridgeInfo | ChannelInfo) -> str:
    if not who.here:
        return f"process {who.pid}, which is not visible here (another container, or another user)"
    try:
        command = Path(f"/proc/{who.pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return f"process {who.pid}"
    return f"process {who.pid} ({printable(command.decode(errors='replace').strip()[:80])})"


def _stopped(bridge: BridgeInfo) -> bool:
    with contextlib.suppress(OSError):
        return bridge.here and overview.stat_of(bridge.pid)[0] == b"T"
    return False


def _fields(fields: list[Sent] | None) -> str:
    return "nothing yet" if fields is None else ", ".join(map(_field, fields)) or "no fields"


def _field(field: Sent) -> str:
    shape = ", ".join(map(str, field.shape))
    values = {"string": f"string of {shape} bytes", "strings": f"{field.rows} strings"}
    ragged = f"{field.rows} rows of {field.dtype}, {shape} values"
    tensor = f"{field.dtype}[{shape}]" if field.shape else field.dtype
    values |= {"ragged": ragged, "tensor": tensor}
    return f"{printable(field.name)}: {values[field.kind]}"

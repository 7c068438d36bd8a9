"""Bridges seen from outside, without a claim, for `ls` and `inspect`."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmbridge._bridge.names import SEGMENT, name_at, opened, places, segment_path, segments
from shmbridge._native import ffi, lib


@dataclass(frozen=True)
class ChannelInfo:
    """One runner's lane, as `ls` shows it."""

    index: int
    state: str  # "free", "attached", "refused" (its runner broke the protocol)
    pid: int  # what the runner said of itself
    here: bool  # a process of that id that uses the bridge is visible here, and has this clock
    served: int  # replies so far
    label: str  # what the runner said that it is about
    waits: bool  # a question has no reply yet
    connects: bool  # the host has not yet accepted it
    since: float  # seconds ago that the runner last began to wait; 0: never, or not known here


@dataclass(frozen=True)
class BridgeInfo:
    """A bridge's segment, as `ls` shows it. Sizes in bytes."""

    name: str
    worker: int  # the host's number among those that share the name
    session: str
    alive: bool  # has a live host
    pid: int  # what the host said of itself
    here: bool  # as a channel's
    size: int
    request_bytes: int
    advice_bytes: int
    looping: bool  # somebody receives
    since: float  # seconds ago that the host last began to wait; 0: never, or not known here
    channels: tuple[ChannelInfo, ...]

    @property
    def title(self) -> str:
        """Its URL, and which worker it belongs to."""
        return f"shm://{self.name}{f' worker {self.worker}' if self.worker else ''}"

    @property
    def served(self) -> int:
        """Replies so far, over all channels."""
        return sum(channel.served for channel in self.channels)


def _channel(fd: int, index: int, found: Any) -> ChannelInfo:
    if not found.alive:
        return ChannelInfo(index, "free", 0, False, found.served, "", False, False, 0)
    values = _values(found, fd)
    del values["alive"]
    state = "refused" if values.pop("poisoned") else "attached"
    return ChannelInfo(index, state, **values)


def _values(found: Any, fd: int) -> dict[str, Any]:
    """What C says of a segment or a channel, by name, and whether it is here."""
    values = {name: getattr(found, name) for name, _ in ffi.typeof(found).fields}
    texts = {"session", "label"} & values.keys()
    here = _here(found.pid, fd)
    since = max(0, time.monotonic_ns() - found.since) / 1e9 if here and found.since else 0
    values |= {name: os.fsdecode(ffi.string(values[name])) for name in texts}
    return {**values, "here": here, "since": since}


def _here(pid: int, fd: int) -> bool:
    """Has a process of that id the segment open? In another PID namespace the number may be
    anyone's. In another time namespace the clock has another zero."""
    with contextlib.suppress(OSError):
        segment, process = os.fstat(fd), Path("/proc", str(pid))
        if not (process / "ns/time").samefile("/proc/self/ns/time"):
            return False
        for each in os.listdir(process / "fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.path.samestat(os.stat(process / "fd" / each), segment):
                    return True
    return False


def stat_of(pid: int) -> list[bytes]:
    """The kernel's fields about a process, from its state on: those after its name, which may be
    any bytes. Errors: OSError."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def bridge(name: str, worker: int = 0) -> BridgeInfo | None:
    """The bridge of that name, living or dead."""
    info = ffi.new("shmb_segment_info *")
    channels = ffi.new("shmb_channel_info[]", lib.MAX_CHANNELS)
    with opened(segment_path(name, worker=worker)) as fd:
        if fd is None or not lib.shmb_inspect(fd, info, channels):
            return None
        lanes = tuple(_channel(fd, i, c) for i, c in enumerate(channels[0 : info.channels]))
        return BridgeInfo(name, worker, **{**_values(info[0], fd), "channels": lanes})


def bridges(name: str | None = None) -> list[BridgeInfo]:
    """Every bridge of this user, living or dead, by name and worker; or those of one name."""
    found = []
    everything = (path for place in places() for path in place.glob("shmb.*"))
    for path in everything if name is None else segments(name):
        match = SEGMENT.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if not match or match["session"]:
                continue
            if info := bridge(name_at(path, match), int(match["worker"] or 0)):
                found.append(info)
    return sorted(found, key=lambda info: (info.name, info.worker))


@dataclass(frozen=True)
class Sent:
    """One tensor of the last layout that a side introduced."""

    name: str
    dtype: str
    kind: str  # "tensor", "string", "strings" or "ragged"
    shape: tuple[int, ...]  # of the values; the values' own number comes first where there are rows
    rows: int | None  # of a list


def sent(bridge: BridgeInfo, channel: int, reply: bool) -> list[Sent] | None:
    """The fields of a channel's requests (or replies); None: nothing was sent yet, or it cannot be
    read."""
    with opened(segment_path(bridge.name, worker=bridge.worker)) as fd:
        count = ffi.new("int64_t *")
        tensors = ffi.NULL if fd is None else lib.shmb_inspect_layout(fd, channel, reply, count)
    if tensors == ffi.NULL:
        return None
    try:
        return [_sent(tensor) for tensor in tensors[0 : count[0]]]
    finally:
        lib.free(tensors)


def _sent(tensor: Any) -> Sent:
    kind = ffi.string(ffi.cast("shmb_kind", tensor.kind)).removeprefix("SHMB_").lower()
    is_list = tensor.kind in (lib.SHMB_STRINGS, lib.SHMB_RAGGED)
    dims = tuple(tensor.dims[0 : tensor.rank + is_list])
    dtype = ffi.string(lib.shmb_dtype_name(tensor.dtype)).decode()
    name = ffi.string(tensor.name).decode(errors="replace")
    return Sent(name, dtype, kind, dims[is_list:], dims[0] if is_list else None)

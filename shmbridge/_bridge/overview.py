"""Bridges seen from outside, without a claim, for `ls` and `inspect`."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmbridge._bridge.segment import SEGMENT, name_at, opened, places, segment_path, segments
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


def _inspect(fd: int, name: str, worker: int) -> BridgeInfo | None:
    info = ffi.new("shmb_segment_info *")
    channels = ffi.new("shmb_channel_info[]", lib.MAX_CHANNELS)
    if not lib.shmb_inspect(fd, info, channels):
        return None
    lanes = tuple(_channel(fd, i, c) for i, c in enumerate(channels[0 : info.channels]))
    here = _here(info.pid, fd)
    session = ffi.string(info.session).decode()
    return BridgeInfo(
        name,
        worker,
        session,
        info.alive,
        info.pid,
        here,
        info.size,
        info.request_bytes,
        info.advice_bytes,
        info.looping,
        _ago(info.since) if here else 0,
        lanes,
    )


def _channel(fd: int, index: int, found: Any) -> ChannelInfo:
    if not found.alive:
        return ChannelInfo(index, "free", 0, False, found.served, "", False, False, 0)
    here = _here(found.pid, fd)
    return ChannelInfo(
        index,
        "refused" if found.poisoned else "attached",
        found.pid,
        here,
        found.served,
        os.fsdecode(ffi.string(found.label)),
        found.waits,
        found.connects,
        _ago(found.since) if here else 0,
    )


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


def _ago(ns: int) -> float:
    """Seconds since a time that another process wrote, which may be any number."""
    return max(0, time.monotonic_ns() - ns) / 1e9 if ns else 0


def bridge(name: str, worker: int = 0) -> BridgeInfo | None:
    """The bridge of that name, living or dead."""
    with opened(segment_path(name, worker=worker)) as fd:
        return None if fd is None else _inspect(fd, name, worker)


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

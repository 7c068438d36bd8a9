"""Names and lifetimes: makes a bridge's files below /dev/shm, finds and removes what the dead left.

The order keeps an invariant that `gc` relies on: a semaphore exists only while a file that names its session does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posix_ipc

from shmbridge._native import ffi, lib
from shmbridge.errors import (
    BY_STATUS,
    InUseError,
    InvalidError,
    NotPermittedError,
    SystemCallError,
    raise_status,
)

SHM = Path("/dev/shm")
SEGMENT = re.compile(r"shmb\.(?P<name>[A-Za-z0-9_.-]+)(~(?P<session>[0-9a-f]{32}))?")
SEMAPHORE = re.compile(r"sem\.shmb-(?P<session>[0-9a-f]{32})-(h|\d+)")


def _text(write: Any, *args: Any) -> str:
    out = ffi.new("char[160]")
    write(*args, out)
    return str(ffi.string(out).decode())


def segment_name(name: str, session: str | None = None) -> str:
    """The POSIX name of a bridge's segment; with a session, while it is being made."""
    return _text(
        lib.shmb_segment_name, name.encode(), ffi.NULL if session is None else session.encode()
    )


def semaphore_name(session: str, channel: int) -> str:
    """The POSIX name of a channel's semaphore; channel -1: the host's."""
    return _text(lib.shmb_semaphore_name, session.encode(), channel)


def bridge_name(url: str) -> str:
    """NAME of "shm://NAME" or a bare NAME; InvalidError for anything else."""
    name = url.removeprefix("shm://")
    if "\0" in name or not lib.shmb_name_valid(name.encode(errors="replace")):
        raise InvalidError(
            f"{url!r} is no name of a bridge: expected shm://NAME or NAME of 1 to 100 letters, digits, '_', '.' or '-', not beginning with '.'"
        )
    return name


@dataclass(frozen=True)
class ChannelInfo:
    """One runner's lane, as `ls` shows it."""

    index: int
    state: str  # "free", "attached", "refused" (its runner broke the protocol)
    pid: int  # what the runner said of itself
    served: int  # replies so far


@dataclass(frozen=True)
class BridgeInfo:
    """A bridge's segment, as `ls` shows it. Sizes in bytes."""

    name: str
    session: str
    alive: bool  # has a live host
    pid: int  # what the host said of itself
    size: int
    request_bytes: int
    advice_bytes: int
    channels: tuple[ChannelInfo, ...]

    @property
    def served(self) -> int:
        """Replies so far, over all channels."""
        return sum(channel.served for channel in self.channels)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _inspect(fd: int, name: str) -> BridgeInfo | None:
    info, channels = ffi.new("shmb_segment_info *"), ffi.new("shmb_channel_info[256]")
    if not lib.shmb_inspect(fd, info, channels):
        return None
    lanes = tuple(
        ChannelInfo(
            i,
            "refused" if c.alive and c.poisoned else "attached" if c.alive else "free",
            c.pid if c.alive else 0,
            c.served,
        )
        for i, c in enumerate(channels[0 : info.channels])
    )
    session = ffi.string(info.session).decode()
    return BridgeInfo(
        name, session, info.alive, info.pid, info.size, info.request_bytes, info.advice_bytes, lanes
    )


def bridges() -> list[BridgeInfo]:
    """Every bridge of this user, living or dead, by name."""
    found = []
    for path in sorted(SHM.glob("shmb.*")):
        match = SEGMENT.fullmatch(path.name)
        if not match or match["session"]:
            continue
        with contextlib.suppress(OSError):
            fd = _open(path)
            if fd is None:
                continue
            try:
                info = _inspect(fd, match["name"])
            finally:
                os.close(fd)
            if info:
                found.append(info)
    return found


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def unlink_bridge(name: str, session: str) -> None:
    """Removes a bridge's files; the segment last, so that what a kill leaves here can still be found."""
    for path in SHM.glob(f"sem.shmb-{session}-*"):
        _unlink(path)
    _unlink(SHM / segment_name(name, session)[1:])
    path = SHM / segment_name(name)[1:]
    try:
        fd = _open(path)
    except OSError:  # it may be anyone's by now
        return
    if fd is None:
        return
    info = _inspect(fd, name)
    if info and info.session == session:
        _unlink(path)
    os.close(fd)


def _remove_if_dead(path: Path) -> bool:
    """Removes a segment whose host is dead, with its semaphores. The lock keeps two of us apart."""
    match = SEGMENT.fullmatch(path.name)
    fd = _open(path)
    if fd is None or not match:
        return False
    try:
        if not lib.shmb_peer_lock(fd, 0):
            return False
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(fd).st_ino != os.stat(path).st_ino:
                return False
        info = _inspect(fd, match["name"])
        session = match["session"] or (info.session if info else None)
        if session:
            for bell in SHM.glob(f"sem.shmb-{session}-*"):
                _unlink(bell)
            _unlink(SHM / segment_name(match["name"], session)[1:])
        return _unlink(path) or bool(match["session"])
    finally:
        os.close(fd)


def remove_dead(name: str) -> None:
    """Removes what a host of that name has left that was killed, if it was."""
    for path in (SHM / segment_name(name)[1:], *SHM.glob(f"{segment_name(name)[1:]}~*")):
        with contextlib.suppress(OSError):
            _remove_if_dead(path)


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def gc() -> list[str]:
    """Removes what dead hosts of this user left below /dev/shm; returns the names of the files."""
    bells = [
        path
        for path in SHM.glob("sem.shmb-*")
        if SEMAPHORE.fullmatch(path.name) and _owner(path) == os.geteuid()
    ]
    removed, living = [], set()
    for path in sorted(SHM.glob("shmb.*")):
        match = SEGMENT.fullmatch(path.name)
        try:
            if not match or _owner(path) != os.geteuid():
                continue
            if _remove_if_dead(path):
                removed.append(path.name)
        except OSError:  # gone, or no file
            continue
        if match["session"]:
            living.add(match["session"])
    living |= {info.session for info in bridges()}
    for path in bells:
        match = SEMAPHORE.fullmatch(path.name)
        if match and match["session"] not in living and _unlink(path):
            removed.append(path.name)
    return removed


def _take_over(name: str) -> None:
    """Makes room for a new host: removes the segment of a dead one, or says why not."""
    path = SHM / segment_name(name)[1:]
    try:
        fd = _open(path)
    except OSError as error:
        if _owner(path) == os.geteuid():
            raise SystemCallError(
                f"{path} is in the way and cannot be opened: remove it ({error})"
            ) from error
        raise NotPermittedError(
            f'"{name}" belongs to another user\'s host: choose another name'
        ) from error
    if fd is None:
        return
    try:
        if os.fstat(fd).st_uid != os.geteuid():  # root may open it
            raise NotPermittedError(
                f'"{name}" belongs to another user\'s host: choose another name'
            )
        if lib.shmb_peer_alive(fd, 0):
            info = _inspect(fd, name)
            raise InUseError(
                f'a live host{f" (process {info.pid})" if info else ""} is named "{name}" already: close it, or choose another name'
            )
    finally:
        os.close(fd)
    _remove_if_dead(path)


def _reserve(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        space = os.statvfs(SHM)
        raise SystemCallError(
            f"the segment needs {size} bytes, but /dev/shm has {space.f_bavail * space.f_frsize} left: use fewer channels or smaller "
            "slots (Host(channels=…, request_bytes=…)), run shmbridge gc, or enlarge /dev/shm (containers: --shm-size)"
        ) from error


def create_host(name: str, plan: Any, wait: int) -> tuple[Any, str]:
    """Makes a bridge and its host: (shmb_host *, session). plan: a shmb_plan *.

    The segment gets its name only when it is complete. Errors: InUseError, InvalidError, NotPermittedError, SystemCallError.
    """
    size = lib.shmb_plan_bytes(plan)
    if not size:
        raise InvalidError(
            f"no segment has {plan.channels} channels of {plan.slots} slots: expected 1 to 256 channels, and slots a power of two from 2 to 32, of 1 byte to 1 TiB"
        )
    fd, session = _new_file(name)
    temporary = SHM / segment_name(name, session)[1:]
    try:
        _reserve(fd, size)
        for channel in range(-1, plan.channels):
            posix_ipc.Semaphore(
                semaphore_name(session, channel), posix_ipc.O_CREX, mode=0o600
            ).close()
        out = ffi.new("shmb_host **")
        status = lib.shmb_host_create(fd, plan, bytes.fromhex(session), wait, out)
        if status:
            text = ffi.string(lib.shmb_host_error(out[0], -1)).decode()
            lib.shmb_host_free(out[0])
            raise_status(status, text)
    except BaseException as error:
        os.close(fd)
        unlink_bridge(name, session)
        if isinstance(error, (posix_ipc.Error, OSError)) and not isinstance(
            error, tuple(BY_STATUS.values())
        ):
            raise SystemCallError(
                f"cannot make the bridge's files below /dev/shm: {error}"
            ) from error
        raise
    try:
        _publish(temporary, SHM / segment_name(name)[1:], name)
    except BaseException:
        lib.shmb_host_free(out[0])
        unlink_bridge(name, session)
        raise
    return out[0], session


def _new_file(name: str) -> tuple[int, str]:
    """A new locked segment file under a temporary name: (descriptor, session)."""
    for _ in range(10):
        session = secrets.token_hex(16)
        try:
            fd = posix_ipc.SharedMemory(
                segment_name(name, session), posix_ipc.O_CREX, mode=0o600
            ).fd
        except (posix_ipc.Error, OSError) as error:
            raise SystemCallError(
                f"cannot make the bridge's files below /dev/shm: {error}"
            ) from error
        if lib.shmb_peer_lock(fd, 0) and os.fstat(fd).st_nlink:
            return fd, session
        os.close(fd)  # a gc between the two took it for a dead one's
    raise InUseError(f'the new segment of "{name}" was removed again and again: try again')


def _publish(temporary: Path, path: Path, name: str) -> None:
    """Gives a complete segment its name, atomically: a link fails where a name exists."""
    for _ in range(10):
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
            temporary.unlink()
            for left in SHM.glob(
                f"{path.name}~*"
            ):  # of hosts that were killed while they made theirs
                with contextlib.suppress(OSError):
                    if _owner(left) == os.geteuid():
                        _remove_if_dead(left)
            return
        _take_over(name)
    raise InUseError(f'other hosts keep taking the name "{name}": choose another')

"""The lifetime of a bridge's file: creates it, and removes those of dead hosts."""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmbridge import errors
from shmbridge._bridge import names
from shmbridge._native import ffi, lib

SWEEP_SECONDS = 1.0  # that a new host waits for a sweep of its name


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # removed meanwhile, or it belongs to another user
        return False
    return True


def _create(path: Path) -> int:
    """A new file, opened. posix_ipc is loaded here: runners, ls and gc need it for nothing."""
    if path.parent != names.SHM:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    import posix_ipc

    try:
        file = posix_ipc.SharedMemory(f"/{path.name}", posix_ipc.O_CREX, mode=0o600)
    except posix_ipc.PermissionsError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error
    except posix_ipc.ExistentialError as error:  # nobody else has this name
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
    return int(file.fd)


def is_file(path: Path, inode: int) -> bool:
    try:
        return path.lstat().st_ino == inode
    except OSError:  # perhaps of its directory
        return False


@dataclass(frozen=True)
class OwnSegment:
    """The segment of a host of this process, and that host."""

    name: str  # the bridge's
    host: Any  # shmb_host *
    inode: int
    worker: int  # the host's number among those that share the name

    def has_name(self) -> bool:
        """Can runners find it? The name may be anyone's by now."""
        return is_file(names.segment_path(self.name, worker=self.worker), self.inode)

    def unlink(self) -> None:
        if self.has_name():
            _unlink(names.segment_path(self.name, worker=self.worker))

    def memory(self) -> Any:
        """The mapping, which lives, with the host, as long as this or any array over it."""
        size = ffi.new("uint64_t *")
        base = lib.shmb_host_memory(self.host, size)
        return ffi.buffer(ffi.gc(base, lambda _: lib.shmb_host_free(self.host)), size[0])


def _remove_if_dead(path: Path) -> list[str]:
    """Removes a segment whose host is dead; returns its path, if so."""
    with names.opened(path) as fd:
        if fd is None or not names.SEGMENT.fullmatch(path.name):
            return []
        # The first byte keeps two sweepers apart and tells them from a host, the second keeps a
        # host from being made of it.
        if not (lib.shmb_peer_take(fd, lib.SWEEPER_BYTE) and lib.shmb_peer_take(fd, lib.HOST_BYTE)):
            return []
        return [str(path)] if is_file(path, os.fstat(fd).st_ino) and _unlink(path) else []


def remove_dead(name: str) -> None:
    """Removes the files of a killed host of that name, if there is one."""
    for path in names.files(name):
        with contextlib.suppress(OSError):
            if _owner(path) == os.geteuid():
                _remove_if_dead(path)


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def gc(name: str | None = None) -> list[str]:
    """Removes the files of dead hosts of this user, of one name or of all. Returns the
    paths of the files. Errors for that name: InUseError (its host is alive), NotPermittedError
    (another user's), SystemCallError."""
    if name is not None:
        for path in names.files(name):
            _require_ours(path)
        require_free_name(name)
        return _sweep(names.files(name))
    return _sweep(path for place in names.places() for path in place.glob("shmb.*"))


def _require_ours(path: Path) -> None:
    """Says why a file that exists cannot be examined. Errors: NotPermittedError,
    SystemCallError."""
    owner = _owner(path)
    if owner not in (None, os.geteuid()):
        raise errors.NotPermittedError(
            f"{path} belongs to user {owner}, another user, whose shmbridge gc removes it: choose "
            "another name"
        )
    with (
        errors.calling(f"{path} is yours, but cannot be opened: chmod 600 it, or remove it"),
        names.opened(path),
    ):
        pass


def _sweep(paths: Iterable[Path]) -> list[str]:
    removed = []
    for path in sorted(paths):
        with contextlib.suppress(OSError):  # gone, or no file
            match = names.SEGMENT.fullmatch(path.name)
            if not match or _owner(path) != os.geteuid():
                continue
            # Runners find the other workers through a dead first one, until it is replaced.
            if match["session"] or not any(map(_lives, names.segments(names.name_at(path, match)))):
                removed += _remove_if_dead(path)
    return removed


def _lives(path: Path) -> bool:
    """Has the segment a live host of this user?"""
    if _owner(path) != os.geteuid():
        return False
    with names.opened(path) as fd:
        return fd is not None and _has_host(fd)


def _has_host(fd: int) -> bool:
    """Has the segment a live host, rather than a sweeper who is about to remove it?"""
    until = time.monotonic() + SWEEP_SECONDS
    looks = 0
    while lib.shmb_peer_look(fd, lib.HOST_BYTE) != lib.PEER_DEAD:
        sweeping = (
            lib.shmb_peer_look(fd, lib.SWEEPER_BYTE) != lib.PEER_DEAD and time.monotonic() < until
        )
        looks = 0 if sweeping else looks + 1
        if looks == 3:  # a sweep may have ended, or begun, between the two bytes
            return True
        time.sleep(0.001)
    return False


def require_free_name(name: str, worker: int | None = None) -> None:
    """InUseError if the name has a live host of this user: any, or that worker."""
    one = None if worker is None else names.segment_path(name, worker=worker)
    for path in [one] if one else names.segments(name):
        if _lives(path):
            raise errors.InUseError(_in_use(name, path))


def _in_use(name: str, path: Path) -> str:
    """What to do about a live host of that name, whose segment is at that path."""
    info = ffi.new("shmb_segment_info *")
    with names.opened(path) as fd:
        known = fd is not None and lib.shmb_inspect(fd, info, ffi.NULL)
    if known and info.pid == os.getpid():
        return (
            f'an open host of this process is named "{name}" already: close() it first; or keep '
            "it, start a model with host.start(model), and assign another to the .model of what "
            "start returned"
        )
    process = f" (process {info.pid})" if known and info.pid else ""
    return f'a live host{process} is named "{name}" already: close it, or choose another name'


def _take_over(name: str, worker: int, alone: bool) -> None:
    """Makes the name available to a new host, which is alone or one of several workers: removes the
    segment of a dead one, or raises."""
    path = names.segment_path(name, worker=worker)
    _require_ours(path)
    require_free_name(name, None if alone else worker)
    if not _remove_if_dead(path):
        time.sleep(0.001)  # someone else is at it


_REMEDIES = {
    errno.ENOENT: "create it, or mount a tmpfs there",
    errno.EROFS: "mount it writable",
    errno.EACCES: "let this user write there",
    errno.ENOMEM: "raise the memory limit of this container or cgroup, or ask for less "
    "(Host(channels=…, request_bytes=…))",
    errno.ENOSPC: "use fewer channels or smaller slots (Host(channels=…, request_bytes=…)), run "
    "shmbridge gc, or enlarge it (of containers: --shm-size)",
}
_ELSEWHERE = "or use a directory of yours with mode 700: ?dir=/DIR, or SHMBRIDGE_DIR, on both sides"


@contextlib.contextmanager
def _call(call: str, place: Path, needed: int, fd: int | None = None) -> Iterator[None]:
    """Names the system call that fails, the bytes that the bridge needs there, and a remedy. fd:
    what has some of them already."""
    try:
        yield
    except OSError as error:
        if isinstance(error, errors.ShmbridgeError):
            raise
        room, remedy = "", _REMEDIES.get(error.errno or 0, "")
        if error.errno == errno.ENOSPC:
            space = os.statvfs(place)
            free = space.f_bavail * space.f_frsize
            free += os.fstat(fd).st_blocks * 512 if fd is not None else 0
            room = f", {free} are free"
            if free >= needed and fd is not None:
                remedy = "mount it without huge=always, which rounds each part up to 2 MiB"
            elif free >= needed:
                remedy = "it has no inode left: remove files, or mount it with a larger nr_inodes"
        remedy = errors.sandbox_remedy(error) or (remedy and f"{remedy}; {_ELSEWHERE}")
        raise errors.SystemCallError(
            f"cannot create a bridge in {place}: {call}: {error.strerror or error} ({needed} bytes "
            f"are needed{room}){remedy and f': {remedy}'}"
        ) from error


def _create_host(name: str, plan: Any, wait: int, worker: int = 0, workers: int = 1) -> OwnSegment:
    """Makes a bridge and its host. plan: a shmb_plan *. worker: the host's number among the
    `workers` that share the name.

    The segment gets its name only when it is complete. Errors: InUseError, InvalidError,
    NotPermittedError, SystemCallError.
    """
    size = lib.shmb_plan_bytes(plan)
    if not size:
        raise errors.InvalidError(
            f"no segment has {plan.channels} channels of {plan.slots} slots: expected 1 to "
            f"{lib.MAX_CHANNELS} channels, and slots a power of two from 2 to 32, of 1 byte to "
            "1 TiB"
        )
    bytes_needed = ffi.new("uint64_t *")
    lib.shmb_plan_reserve(plan, -1, bytes_needed)
    needed = int(bytes_needed[0])
    place = names.segment_path(name).parent
    with _call("shm_open" if place == names.SHM else "open", place, needed):
        fd, session = _new_file(name)
    temporary, out = names.segment_path(name, session), ffi.new("shmb_host **")
    inode = os.fstat(fd).st_ino
    with errors.undone_by(lambda: _unlink(temporary)):
        with errors.undone_by(lambda: os.close(fd)):
            with _call("posix_fallocate", place, needed, fd):
                if number := lib.shmb_plan_reserve(plan, fd, bytes_needed):
                    raise OSError(number, os.strerror(number))
            status = lib.shmb_host_create(fd, plan, bytes.fromhex(session), wait, out)
            if status:
                text = ffi.string(lib.shmb_host_error(out[0], -1)).decode()
                lib.shmb_host_free(out[0])
                errors.raise_status(status, text)
        lib.shmb_host_set_workers(out[0], workers)
        made = OwnSegment(name, out[0], inode, worker)
        with (
            errors.undone_by(lambda: lib.shmb_host_free(out[0])),
            errors.undone_by(made.unlink),
            _call("link", place, needed),
        ):
            _publish(temporary, name, worker, workers == 1)
    return made


def create(name: str, plan: Any, wait: int, worker: int, workers: int, private: bool) -> OwnSegment:
    """The same. private: runners get the name from the host, so where there is no room for it, the
    bridge is made in $TMPDIR."""
    try:
        return _create_host(name, plan, wait, worker, workers)
    except errors.SystemCallError:
        if not private:
            raise
        with contextlib.suppress(OSError, errors.ShmbridgeError):
            names.spare_place().mkdir(0o700, exist_ok=True)
            there = names.bridge_name(f"{names.spare_place()}/{Path(name).name}")
            return _create_host(there, plan, wait)
        raise


def _new_file(name: str) -> tuple[int, str]:
    """A new locked segment file under a temporary name: (descriptor, session)."""
    for _ in range(10):
        session = secrets.token_hex(16)
        fd = _create(names.segment_path(name, session))
        locked = lib.shmb_peer_take(fd, lib.HOST_BYTE)
        number = ffi.errno
        if locked and os.fstat(fd).st_nlink:
            return fd, session
        if not locked and number != errno.EAGAIN:
            os.close(fd)
            _unlink(names.segment_path(name, session))
            with errors.calling("fcntl with F_OFD_SETLK, which locks the bridge's file"):
                raise OSError(number, os.strerror(number))
        os.close(fd)  # a gc between the two took it for a dead one's
    raise errors.InUseError(f'the new segment of "{name}" was removed repeatedly: try again')


def _publish(temporary: Path, name: str, worker: int, alone: bool) -> None:
    """Gives a complete segment its name, atomically: a link fails where a name exists."""
    for _ in range(10):
        if alone:
            require_free_name(name)  # a further worker, too, while the first one is replaced
        with contextlib.suppress(FileExistsError):
            os.link(temporary, names.segment_path(name, worker=worker))
            temporary.unlink()
            remove_dead(name)  # of hosts that were killed while they made theirs
            return
        _take_over(name, worker, alone)
    raise errors.InUseError(f'other hosts keep taking the name "{name}": choose another')

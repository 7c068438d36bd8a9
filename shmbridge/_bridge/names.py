"""Bridges' names, and the files that have them.

A bridge's name here is what cdef/src/segment/names.h makes of what people write: "NAME" for one in
/dev/shm, "/DIR/NAME" for one elsewhere."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from shmbridge._native import ffi, lib
from shmbridge._urls.options import split
from shmbridge.errors import raise_status

SHM = Path("/dev/shm")
SEGMENT = re.compile(
    r"shmb\.(?P<name>[A-Za-z0-9_.-]+)(~((?P<session>[0-9a-f]{32})|(?P<worker>[1-9]\d?)))?"
)


def segment_path(name: str, session: str | None = None, worker: int = 0) -> Path:
    """A bridge's segment, or a worker's; with a session, while it is being made."""
    end, out = session or (str(worker) if worker else ""), ffi.new("char[]", lib.NAME_ROOM)
    lib.shmb_segment_path(os.fsencode(name), end.encode() or ffi.NULL, out)
    return Path(os.fsdecode(ffi.string(out)))


def files(name: str) -> list[Path]:
    """The segment of a name, whether it exists or not, those of its further workers, and those that
    are being made."""
    first = segment_path(name)
    return [first, *sorted(first.parent.glob(f"{first.name}~*"))]


def segments(name: str) -> list[Path]:
    """The same without those that are being made."""
    first, *others = files(name)
    ended = {path: SEGMENT.fullmatch(path.name) for path in others}
    return [first, *(path for path, match in ended.items() if match and match["worker"])]


def bridge_name(url: str) -> str:
    """The bridge of "shm://NAME", "shm://NAME?dir=/DIR" or a bare NAME. Errors: InvalidError, and
    NotPermittedError where others can write to its directory."""
    text, given = split(url.removeprefix("shm://").replace("\0", " "))
    words = [text.encode(errors="replace"), given.get("dir", "").encode(errors="replace")]
    out = ffi.new("char[]", lib.NAME_ROOM)
    status = lib.shmb_bridge_name(words[0], words[1] or ffi.NULL, out)
    found = os.fsdecode(ffi.string(out))
    if status:
        raise_status(status, found)
    return found


def places() -> list[Path]:
    """The directories in which bridges lie whose names have none."""
    return list(dict.fromkeys([segment_path(bridge_name("any")).parent, SHM, spare_place()]))


def spare_place() -> Path:
    """A directory of this user's for bridges that find no room in /dev/shm."""
    return Path(os.environ.get("TMPDIR") or "/tmp", f".shmbridge-{os.geteuid()}")


def name_at(path: Path, match: re.Match[str]) -> str:
    """The bridge whose file is at a path that SEGMENT matches."""
    return match["name"] if path.parent == SHM else f"{path.parent}/{match['name']}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """A segment's file during the block; None: there is none."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)

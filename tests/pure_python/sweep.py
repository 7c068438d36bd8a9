"""Removes the files of dead hosts (3)."""

import contextlib
import os
import time
from pathlib import Path

from . import segment as s

SHM = Path(s.SHM)


def host_lives(file):
    """Whether a host, and not a sweeper, has the file. It waits for a sweeper for a second."""
    end, checks = time.monotonic() + 1, 0
    while checks < 3 and s.locked(file, s.HOST_LOCK):
        sweeping = s.locked(file, s.SWEEP_LOCK) and time.monotonic() < end
        checks = 0 if sweeping else checks + 1
        time.sleep(0.001)
    return checks == 3


def is_file(path, file):
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(file))
    return False


def unlink(path, file):
    """Unlinks `path` if it still is this file."""
    if is_file(path, file):
        path.unlink()


def unlink_semaphores(session):
    for path in SHM.glob(f"sem.shmb-{session}-*"):
        path.unlink(missing_ok=True)


def remove_if_dead(path):
    """Removes a segment without a host, and its semaphores."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mine = os.fstat(file).st_uid == os.geteuid()
        if not (mine and s.lock(file, s.SWEEP_LOCK) and s.lock(file, s.HOST_LOCK)):
            return
        if not is_file(path, file):
            return
        name, _, in_name = path.name.partition("~")
        living = _living_sessions(file)
        for session in {in_name, os.pread(file, 16, 24).hex()} - {""}:
            if living is not None and session not in living:
                unlink_semaphores(session)
            unlink(SHM / f"{name}~{session}", file)
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _living_sessions(dead):
    """The sessions that other live segments name. None: one of them is wrong."""
    for _ in range(20):
        sessions = {}
        for path in SHM.glob("shmb.*"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                if not is_file(path, dead) and s.locked(file.fileno(), s.HOST_LOCK):
                    in_name = path.name.partition("~")[2]
                    sessions[in_name or file.read(40)[24:].hex()] = not in_name
        named = (session for session, is_complete in sessions.items() if is_complete)
        if all((SHM / f"sem.shmb-{session}-h").exists() for session in named):
            return set(sessions)
        time.sleep(0.001)  # one may be closing just now
    return None

"""Removes the files of dead hosts (3)."""

import contextlib
import os
import time

from . import segment as s


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


def remove_if_dead(path):
    """Removes a segment without a host."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mine = os.fstat(file).st_uid == os.geteuid()
        if not (mine and s.lock(file, s.SWEEP_LOCK) and s.lock(file, s.HOST_LOCK)):
            return
        if is_file(path, file):
            path.unlink(missing_ok=True)
    finally:
        os.close(file)

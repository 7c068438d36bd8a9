"""The processes that a trainer started."""

import os
import time
from pathlib import Path

MARK = "SHMBRIDGE_TEST_MARK"  # who has this variable was started by a test


def marked(text):
    """The processes that a test started, and theirs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={text}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return sorted({*found} - {os.getpid()})


def eventually(condition, seconds=20):
    """Waits until it is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


def words_of(pid):
    """A process's command; "" where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""

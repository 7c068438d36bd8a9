"""The processes that a trainer started."""

import os
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

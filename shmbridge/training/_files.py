"""Files that a kill never leaves half written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from shmbridge.errors import undone_by


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Replaces a file atomically."""
    path = Path(path).absolute()
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # others may write it, too
    with undone_by(lambda: beside.unlink(missing_ok=True)):
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

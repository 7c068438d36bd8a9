"""What a training needs to go on: kept in one file that is whole, whenever the trainer is killed.

Type this again, and it goes on::

    start = {"weights": np.zeros(5), "random": np.random.default_rng(0), "done": 0}
    state = checkpoint.load("training.checkpoint") or start
    while state["done"] < 100:
        ...
        checkpoint.save("training.checkpoint", state)
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from shmbridge.errors import InvalidError, undone_by

__all__ = ["load", "save"]


def save(path: str | os.PathLike[str], state: Any) -> None:
    """Keeps a state in place of the one before, at once: a kill at any moment, or a power cut,
    leaves the old one or the new one.

    Args:
        path: The file. One process writes it.
        state: Whatever Python's pickle takes: arrays, numpy's random generators, a corpus's
            samplers, what `state_dict()` of PyTorch returns.

    Raises:
        OSError: It cannot be written.
        Exception: What pickle raises where it does not take the state; the file is as it was.
    """
    write_whole(path, pickle.dumps(state))


def load(path: str | os.PathLike[str]) -> Any:
    """What `save` kept there. Load your own files alone: pickle runs what a file tells it to.

    Args:
        path: The file.

    Returns:
        The state, or None where there is no file.

    Raises:
        InvalidError: It is no such file.
        OSError: It cannot be read.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return pickle.loads(data)
    except Exception as error:  # pickle has no common base
        raise InvalidError(f"{path}: expected what checkpoint.save wrote: {error}") from error


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file in place of the one before, at once."""
    path = Path(path).absolute()
    beside = path.with_name(f".{path.name}.new")  # what a kill leaves of it, the next one replaces
    with undone_by(lambda: beside.unlink(missing_ok=True)):
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

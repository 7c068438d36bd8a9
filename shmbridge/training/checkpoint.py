"""Saves the state of a training in one file that is complete even if the trainer is killed.

Run this again, and it resumes::

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
    """Replaces the saved state atomically: a kill at any moment, or a power failure, leaves the old
    or the new state.

    Args:
        path: The file. Only one process may write it.
        state: Any object that Python's pickle supports: arrays, numpy's random generators, a
            corpus's samplers, the `state_dict()` of a PyTorch model.

    Raises:
        OSError: It cannot be written.
        Exception: An exception of pickle; the file is unchanged.
    """
    write_whole(path, pickle.dumps(state))


def load(path: str | os.PathLike[str]) -> Any:
    """Loads a state of `save`. Load only your own files: loading a pickle can run any code.

    Args:
        path: The file.

    Returns:
        The state, or None if there is no file.

    Raises:
        InvalidError: The file is not a checkpoint.
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
    """Replaces a file atomically."""
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

"""The base class of peers.py: a question is a float32 array, its answer an int64.

A peer is created in the process that measures; `serve` and `connect` run in its children. Each has
the setting that its documentation names as the fastest for synchronous requests; a comment has the
source. Libraries are imported in the children, so that none affects another.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Ask = Callable[[Any], Any]
ANSWER = struct.Struct("q")


def model(array: Any) -> int:
    """Looks at one element."""
    return int(array[0] < 1)


def answer(data: Any) -> bytes:
    """The model, from bytes to bytes."""
    return ANSWER.pack(model(np.frombuffer(data, np.float32)))


class Peer:
    """size: bytes of a question; build: a folder with the C programs; folder: for sockets and
    pipes."""

    name = ""
    needs: tuple[str, ...] = ()  # packages, and programs in `build`
    said = ""  # the line that the server printed when clients may connect

    def __init__(self, size: int, clients: int, folder: Path, build: Path) -> None:
        self.size, self.clients, self.folder, self.build = size, clients, folder, build
        self.id = f"peers-{os.getpid()}-{folder.name[-6:]}"
        self.make()

    def make(self) -> None:
        """What both sides inherit."""

    def serve(self, ready: Callable[[], None]) -> None:
        """Answers until it is killed; calls `ready` when clients may connect."""
        raise NotImplementedError

    def server(self) -> list[str]:
        """A program that answers, instead of `serve`."""
        return []

    def connect(self, client: int) -> Ask:
        """What asks one question."""
        raise NotImplementedError

    def program(self, client: int) -> list[str]:
        """A program that asks, instead of `connect`: peers_ask.c's arguments before the bytes and
        seconds."""
        return []

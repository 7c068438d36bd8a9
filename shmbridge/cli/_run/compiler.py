"""What ends `shmbridge run` before there is a compiler to which signals go."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from shmbridge._native import lib

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """The signals that this process does not ignore, for example because of nohup."""
    return [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]


@contextlib.contextmanager
def ending_by_signals() -> Iterator[None]:
    """A block that SIGINT, SIGTERM and SIGHUP leave, and this process with it."""
    caught: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        raise KeyboardInterrupt

    old = {number: signal.signal(number, leave) for number in heeded()}
    try:
        yield
    except KeyboardInterrupt:
        if not caught:
            raise
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if caught:
        lib.shmb_end_as(caught[0])

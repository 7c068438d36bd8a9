"""The signals that may end a command."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def handle(handler: Any) -> None:
    """For all signals that may end the program: nothing may be left in /dev/shm."""
    for number in ENDING:
        signal.signal(number, handler)


@contextlib.contextmanager
def until_signal() -> Iterator[None]:
    """Ctrl-C ends the block, and nothing interrupts what comes after it."""
    with contextlib.suppress(KeyboardInterrupt):
        yield
    handle(signal.SIG_IGN)

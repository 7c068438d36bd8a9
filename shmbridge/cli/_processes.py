"""How commands and other processes end."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shmbridge.errors import calling

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# What each way to end a process gets: seconds for the question under way, since the compiler's
# next one finds no host anyway; for everything else; for the kernel.
SECONDS = 1.0, 3.0, 3.0
FIRST_LOOK, LOOK = 0.001, 0.01  # seconds between two looks at a process


def end(
    pids: Sequence[int],
    ended: Callable[[float], bool],
    patience: tuple[float, float, float] = SECONDS,
) -> None:
    """Ends processes: SIGTERM twice, then SIGKILL. ended: waits so many seconds, and returns
    whether all have ended."""
    for number, seconds in zip(
        (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL), patience, strict=True
    ):
        if ended(0):
            return
        for pid in pids:
            with calling("kill"), contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if ended(seconds):
            return


def reap(child: int, seconds: float = 0) -> int | None:
    """A child's exit status once it has ended, for which it waits so long; negative: a signal."""
    until, look = time.monotonic() + seconds, FIRST_LOOK
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() >= until:
            return None
        time.sleep(look)
        look = min(2 * look, LOOK)
    return os.waitstatus_to_exitcode(ended[1])


def on_signals(handler: Any) -> None:
    """For all signals that may end the program: nothing may be left in /dev/shm."""
    for number in ENDING:
        signal.signal(number, handler)


@contextlib.contextmanager
def until_signal() -> Iterator[None]:
    """Ctrl-C ends the block, and nothing interrupts what comes after it."""
    with contextlib.suppress(KeyboardInterrupt):
        yield
    on_signals(signal.SIG_IGN)

"""The end of other processes."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

from shmbridge.errors import calling

# What each way to end a process gets: seconds for the question under way, since the compiler's
# next one finds no host anyway; for everything else; for the kernel.
SECONDS = 1.0, 3.0, 3.0
FIRST_LOOK, LOOK = 0.001, 0.01  # seconds between two looks at a process


def end(
    pids: Sequence[int],
    ended: Callable[[float], bool],
    patience: tuple[float, float, float] = SECONDS,
) -> None:
    """Ends processes more and more firmly. ended: waits so many seconds, and tells whether all
    have."""
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

"""A process that `shmbridge run` forks, which is much faster than to start another Python."""

import atexit
import contextlib
import math
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from shmbridge._native import lib
from shmbridge.cli._processes import on_signals, reap
from shmbridge.cli._text import one_line
from shmbridge.errors import DeadlineError, ModelError, ShmbridgeError, ending, error_of

GRACE = 0.5  # seconds for it to end


class Child:
    """A forked process that calls `work(ready, life)`: that calls `ready` once it works, with what
    `said` is then, and returns when `life` says something, because this process wants it, or ends,
    because it has died.

    Raises the error with which it fails before; ModelError if it ends; DeadlineError if it is not
    ready in so many seconds.
    """

    def __init__(
        self, what: str, work: Callable[[Callable[[str], None], Connection], None], seconds: float
    ) -> None:
        self._what, self._parent = what, os.getpid()
        self._status: int | None = None
        self.said = ""
        ready, its_ready = Pipe(duplex=False)
        its_life, self._life = Pipe(duplex=False)
        self._pid = os.fork()
        if self._pid == 0:
            self._life.close()
            _be(work, its_ready, its_life)
        its_ready.close()
        its_life.close()
        why = self._startup_error(ready, seconds)
        ready.close()
        if why:
            self.close(0)  # what still loads would not end by itself
            raise why

    def _startup_error(self, ready: Connection, seconds: float) -> ShmbridgeError | None:
        if not ready.poll(None if seconds == math.inf else seconds):
            return DeadlineError(
                f"the {self._what} did not load within {seconds:g} s: make it load faster, or use "
                "a longer --deadline"
            )
        try:
            status, self.said = ready.recv()
        except EOFError:
            return ModelError(f"{self.ended(GRACE)} while it loaded")
        return error_of(status, self.said) if status else None

    def ended(self, seconds: float) -> str:
        """How it has ended; "": it has not, nor does within so many seconds."""
        if self._status is None:
            self._status = reap(self._pid, seconds)
        if self._status is None:
            return ""
        return f"the {self._what} process ended ({ending(self._status)})"

    def close(self, grace: float = GRACE) -> None:
        """Ends it, and waits until it has."""
        if os.getpid() != self._parent:  # another child, which ends
            return
        with contextlib.suppress(OSError):  # it has ended
            self._life.send(None)
        self._life.close()
        if not self.ended(grace):
            os.kill(self._pid, signal.SIGKILL)
            self.ended(math.inf)


def _be(
    work: Callable[[Callable[[str], None], Connection], None], ready: Connection, life: Connection
) -> None:
    """In the child, which does not return. What it prints goes to stderr: stdin and stdout are the
    compiler's."""
    atexit.register(_leave)  # before the model's, so after them
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def works(said: str) -> None:
        on_signals(signal.SIG_IGN)  # the run handles them: the compiler may still ask
        ready.send((0, said))

    try:
        work(works, life)
    except SystemExit as error:  # of a policy that loads
        os._exit(error.code if isinstance(error.code, int) else 1)
    except Exception as error:
        status = getattr(error, "status", 0) or lib.SHMB_SYSTEM
        with contextlib.suppress(OSError):
            ready.send((status, one_line(error)))
    sys.exit()


def _leave() -> None:
    """Ends the process without the time in which Python would take its modules apart."""
    sys.stdout.flush()
    os._exit(0)

"""Runner plug-ins: what stands behind a URL's scheme, in Python; entry points of the group "shmbridge.runners".

The C core checks and copies what goes in and out, so that `Runner` is the same for every scheme.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from shmbridge import plugins
from shmbridge._native import lib
from shmbridge.errors import InterruptedCallError, UnsupportedError

LOOK = 0.1  # seconds between looks whether an evaluate should end
_adding = threading.RLock()  # a plug-in may connect while it is imported


class RunnerKind:
    """What a runner plug-in subclasses: one object for each runner that is opened, used by one thread at a time.

    where: what follows "scheme://", without the options; options: those of the URL that every
    runner has not (connect_timeout, deadline, wait, retries, backoff, default_advice).
    An exception fails the open or the evaluate with its type and text; a ShmbridgeError keeps its status, and NoHostError,
    BusyError and DeadlineError of the constructor mean another try until the connect deadline.
    """

    _sink: Any = None  # of the evaluate under way
    connect_timeout: float = 10  # seconds, set before the constructor runs; what one try may wait at most; below 0: do not wait

    def __init__(self, where: str, **options: str) -> None:
        raise NotImplementedError

    def evaluate(
        self, features: Mapping[str, Any], want: np.dtype[Any] | None, deadline: float | None
    ) -> Any:
        """The advice: a value, or a dict of several by name, of what `Runner.evaluate` takes. One value is converted to
        dtype `want` if that is exact. Features are numpy arrays, numpy scalars for rank 0, str, lists of str and Ragged, all copies.
        deadline: seconds; a DeadlineError keeps it."""
        raise NotImplementedError

    def interrupted(self) -> bool:
        """Has `shmb_interrupt` asked the evaluate under way to end? One that waits looks every 100 ms, in its own thread, and then
        raises InterruptedCallError."""
        return self._sink is not None and bool(lib.shmb_sink_interrupted(self._sink))

    def take(self, queue: SimpleQueue[Any], seconds: float | None) -> Any:
        """What comes out of a queue, which an interrupt ends. None: without limit. Errors: queue.Empty, InterruptedCallError."""
        until = float("inf") if seconds is None else time.monotonic() + seconds
        while not self.interrupted():
            left = until - time.monotonic()
            try:
                return queue.get(timeout=max(0, min(LOOK, left)))
            except Empty:
                if left <= LOOK:
                    raise
        raise InterruptedCallError("interrupted while waiting for advice")

    def close(self) -> None:
        """The runner is closed; called once."""


def ensure(scheme: str) -> None:
    """Makes the plug-in of that scheme known to the C core. Errors: UnsupportedError (there is none, it does not load, or is no
    RunnerKind)."""
    with _adding:
        if lib.shmb_scheme_known(scheme.encode()):
            return
        known = plugins.names("runners")
        if scheme not in known:
            raise UnsupportedError(
                f'there is no runner for "{scheme}://": expected shm://NAME, pipe:///PATH, onnx://, aot://, tflite://, or one of '
                f"{', '.join(f'{name}://' for name in known)}"
            )
        from shmbridge.runners._register import register

        register(scheme, plugins.find("runners", scheme))

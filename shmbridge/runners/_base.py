"""The base class of runner plug-ins."""

from __future__ import annotations

import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from shmbridge._native import lib
from shmbridge.errors import DeadlineError, InterruptedCallError

LOOK = 0.1  # seconds between looks whether an evaluate should end


def late(deadline: float | None) -> DeadlineError:
    """The error of an evaluate without an answer within so many seconds."""
    return DeadlineError(
        f"no advice within the deadline of {deadline:g} s: use a faster model or a longer deadline"
    )


class RunnerKind:
    """The base class of runner plug-ins: one object for each opened runner, used by one thread at a
    time.

    An exception fails the open or the evaluate with its type and text. A ShmbridgeError keeps its
    status. If the constructor raises NoHostError, BusyError or DeadlineError, it is tried again
    until the connect deadline.

    Args:
        where: The URL after "scheme://", without the options.
        options: The URL's options, without those of every runner: connect_timeout, deadline, wait,
            retries, backoff, default_advice, label.
    """

    _sink: Any = None  # of the evaluate under way
    # Seconds that one try may wait for a missing peer; set before the constructor runs.
    connect_timeout: float = 0
    deadline: float | None = None
    """Seconds that an answer may take where the caller gives no deadline; the constructor may set
    it. None: 10. `math.inf`: no limit."""

    def __init__(self, where: str, **options: str) -> None:
        raise NotImplementedError

    def evaluate(
        self, features: Mapping[str, Any], want: np.dtype[Any] | None, deadline: float | None
    ) -> Any:
        """Answers one request.

        Args:
            features: Values by name: numpy arrays, numpy scalars for rank 0, str, lists of str and
                Ragged, all copies.
            want: The wanted dtype of the advice. A single value is converted later if that is
                exact.
            deadline: Seconds that this may take; None: no limit. Raise DeadlineError when it
                passes.

        Returns:
            The advice: a value, or a dict of several by name, of the types that `Runner.evaluate`
            accepts.
        """
        raise NotImplementedError

    def interrupted(self) -> bool:
        """Whether `shmb_interrupt` has ended this evaluate. If you wait, check it every 100 ms in
        the same thread, and then raise InterruptedCallError."""
        return self._sink is not None and bool(lib.shmb_sink_interrupted(self._sink))

    def take(self, queue: SimpleQueue[Any], seconds: float | None) -> Any:
        """Waits for an item of a queue, until an interrupt.

        Args:
            queue: The queue that another thread fills.
            seconds: How long to wait. None: without limit.

        Returns:
            The item.

        Raises:
            queue.Empty: No item arrived in time.
            InterruptedCallError: `interrupted` is true.
        """
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
        """Closes the runner; called once."""

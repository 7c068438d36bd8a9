"""The signals that may end a command."""

from __future__ import annotations

import signal
from typing import Any


def handle(handler: Any) -> None:
    """For all signals that may end the program: nothing may be left in /dev/shm."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)

"""Hosts that are open: closed when the process ends, and by SIGTERM where nobody else handles it."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import weakref
from types import FrameType
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


_open_hosts: weakref.WeakSet[Closable] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for host in list(_open_hosts):
        host.close()


def _end_by_sigterm(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # another one would end it half closed
    try:
        _close_all()
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # whoever waits for this process sees what it died of


def _handle_sigterm(wanted: bool) -> None:
    """Ours stands in for the default alone, while hosts are open: whoever has another, before or later, keeps it."""
    old, new = (signal.SIG_DFL, _end_by_sigterm) if wanted else (_end_by_sigterm, signal.SIG_DFL)
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGTERM) is old:
            signal.signal(signal.SIGTERM, new)


# Children have nothing to close, and Python forgets a signal that a handler gets just behind the fork.
os.register_at_fork(
    before=lambda: _handle_sigterm(False),
    after_in_parent=lambda: _handle_sigterm(bool(_open_hosts)),
)


def opened(host: Closable) -> None:
    """Will be closed at the end."""
    _open_hosts.add(host)
    _handle_sigterm(True)


def closed(host: Closable) -> None:
    """Is closed by now."""
    _open_hosts.discard(host)
    if not _open_hosts:
        _handle_sigterm(False)

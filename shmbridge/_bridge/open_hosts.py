"""Hosts that are open in this process: closed when the process ends, and by SIGTERM if it has no
other handler."""

import atexit
import contextlib
import os
import signal
import weakref
from types import FrameType
from typing import Any

_open_hosts: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


@atexit.register
def close_all() -> None:
    for host in list(_open_hosts.values()):
        host.close()


def _end_by_sigterm(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # another one would end it half closed
    try:
        close_all()
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # whoever waits for this process sees what it died of


def _handle_sigterm(wanted: bool) -> None:
    """Our handler replaces only the default, while hosts are open; another handler is kept."""
    old, new = (signal.SIG_DFL, _end_by_sigterm) if wanted else (_end_by_sigterm, signal.SIG_DFL)
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGTERM) is old:
            signal.signal(signal.SIGTERM, new)


# Children have nothing to close, and Python forgets a signal that a handler gets just behind the
# fork.
os.register_at_fork(
    before=lambda: _handle_sigterm(False),
    after_in_parent=lambda: _handle_sigterm(bool(_open_hosts)),
)


def opened(host: Any) -> None:
    _open_hosts[host.name] = host
    _handle_sigterm(True)


def host_of(name: str) -> Any:
    """The host of a bridge, if it is open in this process, else None."""
    return _open_hosts.get(name)


def closed(host: Any) -> None:
    if host_of(host.name) is host:  # another may have the name already
        del _open_hosts[host.name]
    if not _open_hosts:
        _handle_sigterm(False)

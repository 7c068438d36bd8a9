"""How a runner connects, and how C's errors become exceptions."""

import math
import operator
import os
import time
from typing import Any, NoReturn

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._runner import urls
from shmbridge._urls import plugins
from shmbridge.errors import BusyError, DeadlineError, InvalidError, NoHostError, raise_status

CONNECT_SLICE = 0.05  # seconds between looks at signals while connecting
RETRY = {NoHostError.status, BusyError.status, DeadlineError.status}


def number_text(value: float | None) -> Any:
    if value is None:
        return ffi.NULL
    if isinstance(value, (float, np.floating)):
        return plugins.c_text(repr(float(value)))
    try:
        return plugins.c_text(str(operator.index(value)))
    except TypeError:
        raise InvalidError(f"default_advice={value!r}: expected an int or a float") from None


def open_runner(url: str | None, chosen: dict[str, Any], moment: bool) -> Any:
    """shmb_open in slices, so that Ctrl-C works while there is no host. chosen: shmb_options."""
    start, url = time.monotonic(), os.environ.get("SHMBRIDGE_URL") if url is None else url
    text = ffi.NULL if url is None else urls.resolve(url).encode()
    out, timeout = ffi.new("shmb_runner **"), ffi.new("double *")
    # A runner in Python sees Ctrl-C itself.
    in_python = (url or "").partition("://")[0] in plugins.python_schemes
    options = ffi.new("shmb_options *", {"size": ffi.sizeof("shmb_options"), **chosen})
    while True:
        left = start + timeout[0] - time.monotonic() if timeout[0] else math.inf
        status = lib.shmb_open_slice(
            text, options, left if in_python else CONNECT_SLICE, timeout, out
        )
        if not status:
            return out[0]
        again = status in RETRY and time.monotonic() - start < (
            timeout[0] if moment else chosen["connect_timeout"]
        )
        if not again and not lib.shmb_open_end(out[0], status):
            return out[0]
        why = ffi.string(lib.shmb_error_message(out[0])).decode(errors="replace")
        lib.shmb_close(out[0])
        if not again:
            raise_error(status, why)


def raise_error(status: int, text: Any) -> NoReturn:
    """As raise_status, but what a plug-in raised that is no failure, such as Ctrl-C, as it is."""
    plugins.raise_carried()
    raise_status(status, text)

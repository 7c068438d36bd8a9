"""One exception for each `shmb_status` of the C API."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from shmbridge._native import ffi, lib

BY_STATUS: dict[int, type[ShmbridgeError]] = {}


class ShmbridgeError(Exception):
    """Anything that went wrong in shmbridge; the text says what was expected, what was found, and
    what to do."""

    status: int = 0

    def __init_subclass__(cls, status: int = 0) -> None:
        if status:
            cls.status = status
            BY_STATUS[status] = cls


class InvalidError(ShmbridgeError, ValueError, status=lib.SHMB_INVALID):
    """An argument, URL or option makes no sense."""


class UnsupportedError(ShmbridgeError, status=lib.SHMB_UNSUPPORTED):
    """No runner of that scheme in this library."""


class NoHostError(ShmbridgeError, ConnectionError, status=lib.SHMB_NO_HOST):
    """No live host of that name until the connect deadline."""


class BusyError(ShmbridgeError, ConnectionError, status=lib.SHMB_BUSY):
    """Every channel of the host is taken until the connect deadline."""


class InUseError(ShmbridgeError, status=lib.SHMB_IN_USE):
    """A live host has that name already."""


class IncompatibleError(ShmbridgeError, status=lib.SHMB_INCOMPATIBLE):
    """The other side speaks another version of the protocol."""


class NotPermittedError(ShmbridgeError, PermissionError, status=lib.SHMB_PERMISSION):
    """The segment belongs to someone else or is open to others."""


class CorruptError(ShmbridgeError, status=lib.SHMB_CORRUPT):
    """Bytes that the protocol rules out."""


class HostGoneError(ShmbridgeError, ConnectionError, status=lib.SHMB_HOST_GONE):
    """The host died."""


class RunnerGoneError(ShmbridgeError, ConnectionError, status=lib.SHMB_RUNNER_GONE):
    """The runner died or left before the reply."""


class ClosedError(ShmbridgeError, status=lib.SHMB_CLOSED):
    """The host closed the bridge, or this handle is closed."""


class DeadlineError(ShmbridgeError, TimeoutError, status=lib.SHMB_TIMEOUT):
    """The deadline passed; a late reply will be dropped."""


class InterruptedCallError(ShmbridgeError, status=lib.SHMB_INTERRUPTED):
    """`shmb_interrupt` ended the wait."""


class TooLargeError(ShmbridgeError, status=lib.SHMB_TOO_LARGE):
    """The message does not fit its slot."""


class MismatchError(ShmbridgeError, status=lib.SHMB_MISMATCH):
    """Names, dtypes or shapes are not the expected ones."""


class InexactError(ShmbridgeError, ValueError, status=lib.SHMB_INEXACT):
    """A value has no exact counterpart in the wanted dtype."""


class ModelError(ShmbridgeError, status=lib.SHMB_MODEL):
    """The model failed; the text is its own."""


class DroppedError(ShmbridgeError, status=lib.SHMB_DROPPED):
    """The host let the request go without a reply."""


class ForkedError(ShmbridgeError, status=lib.SHMB_FORKED):
    """The handle was inherited through fork."""


class SystemCallError(ShmbridgeError, OSError, status=lib.SHMB_SYSTEM):
    """The operating system refused."""


class NoMemoryError(ShmbridgeError, MemoryError, status=lib.SHMB_NO_MEMORY):
    """Out of memory."""


def raise_status(status: int, text: Any) -> NoReturn:
    """Raises the exception of a non-zero `status`; text: a C string, str, or empty for the status's
    own line."""
    message = text if isinstance(text, str) else ffi.string(text).decode(errors="replace")
    raise BY_STATUS.get(status, ShmbridgeError)(
        message or ffi.string(lib.shmb_strerror(status)).decode()
    )


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Calls `undo` where the block raises."""
    try:
        yield
    except BaseException:
        undo()
        raise


def shortened(text: str, most: int = 500) -> str:
    """A text of at most so many characters; one that was cut ends with "…"."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def error_place(error: BaseException) -> str:
    """FILE:LINE where an exception was raised; empty when it was not."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = f"{frame.f_code.co_filename}:{line}"
    return place


LIBRARIES = (os.path.dirname(__file__), os.path.dirname(os.__file__), "<frozen ")


def _own_line(error: BaseException) -> str:
    """Where the last call is in code that belongs to no library, as "FILE:LINE: SOURCE: ": what
    numpy raises names no feature, but that line does. A `raise` shows nothing that the exception
    does not."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(LIBRARIES) and "-packages/" not in file:
            source = shortened(linecache.getline(file, line).strip(), 100)
            found = f"{os.path.basename(file)}:{line}: "
            if source and not source.startswith("raise"):
                found += f"{source}: "
    return found


def error_text(error: BaseException) -> str:
    """An exception in one line: the caller's line that raised it, its type and its text."""
    try:
        text = str(error)
    except Exception:  # its __str__ fails
        text = ""
    name = type(error).__name__
    return _own_line(error) + (f"{name}: {text}" if text else name)

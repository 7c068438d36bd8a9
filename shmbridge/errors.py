"""One exception for each `shmb_status` of the C API."""

from __future__ import annotations

import errno
import linecache
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from shmbridge._native import ffi, lib

__all__ = [
    "BusyError",
    "ClosedError",
    "CorruptError",
    "DeadlineError",
    "DroppedError",
    "ForkedError",
    "HostGoneError",
    "InUseError",
    "IncompatibleError",
    "InexactError",
    "InterruptedCallError",
    "InvalidError",
    "MismatchError",
    "ModelError",
    "NoHostError",
    "NoMemoryError",
    "NotPermittedError",
    "RunnerGoneError",
    "ShmbridgeError",
    "SystemCallError",
    "TooLargeError",
    "UnsupportedError",
]
BY_STATUS: dict[int, type[ShmbridgeError]] = {}


class ShmbridgeError(Exception):
    """Base class of all errors of shmbridge. The text contains what was expected, what was found,
    and what to do."""

    status: int = 0

    def __init_subclass__(cls, status: int = 0) -> None:
        if status:
            cls.status = status
            BY_STATUS[status] = cls


class InvalidError(ShmbridgeError, ValueError, status=lib.SHMB_INVALID):
    """An argument, URL or option is invalid."""


class UnsupportedError(ShmbridgeError, status=lib.SHMB_UNSUPPORTED):
    """This library has no runner for that scheme."""


class NoHostError(ShmbridgeError, ConnectionError, status=lib.SHMB_NO_HOST):
    """No live host of that name appeared within the connect timeout."""


class BusyError(ShmbridgeError, ConnectionError, status=lib.SHMB_BUSY):
    """All channels of the host stayed in use for the connect timeout."""


class InUseError(ShmbridgeError, status=lib.SHMB_IN_USE):
    """A live host already has that name."""


class IncompatibleError(ShmbridgeError, status=lib.SHMB_INCOMPATIBLE):
    """The other side uses another protocol version."""


class NotPermittedError(ShmbridgeError, PermissionError, status=lib.SHMB_PERMISSION):
    """Another user owns the segment, or its permissions let other users in."""


class CorruptError(ShmbridgeError, status=lib.SHMB_CORRUPT):
    """The received bytes violate the protocol."""


class HostGoneError(ShmbridgeError, ConnectionError, status=lib.SHMB_HOST_GONE):
    """The host died."""


class RunnerGoneError(ShmbridgeError, ConnectionError, status=lib.SHMB_RUNNER_GONE):
    """The runner died or disconnected before the reply."""


class ClosedError(ShmbridgeError, status=lib.SHMB_CLOSED):
    """The host closed the bridge, or this handle is closed."""


class DeadlineError(ShmbridgeError, TimeoutError, status=lib.SHMB_TIMEOUT):
    """The deadline passed. A late reply will be discarded."""


class InterruptedCallError(ShmbridgeError, status=lib.SHMB_INTERRUPTED):
    """`shmb_interrupt` ended the wait."""


class TooLargeError(ShmbridgeError, status=lib.SHMB_TOO_LARGE):
    """The message does not fit its slot."""


class MismatchError(ShmbridgeError, status=lib.SHMB_MISMATCH):
    """Names, dtypes or shapes differ from the expected ones."""


class InexactError(ShmbridgeError, ValueError, status=lib.SHMB_INEXACT):
    """A value is not exactly representable in the wanted dtype."""


class ModelError(ShmbridgeError, status=lib.SHMB_MODEL):
    """The model failed; the text is the model's."""


class DroppedError(ShmbridgeError, status=lib.SHMB_DROPPED):
    """The host discarded the request without a reply."""


class ForkedError(ShmbridgeError, status=lib.SHMB_FORKED):
    """The handle was inherited through fork."""


class SystemCallError(ShmbridgeError, OSError, status=lib.SHMB_SYSTEM):
    """A system call failed."""


class NoMemoryError(ShmbridgeError, MemoryError, status=lib.SHMB_NO_MEMORY):
    """Out of memory."""


def error_of(status: int, text: Any) -> ShmbridgeError:
    """The exception of a non-zero `status`; text: a C string, str, or empty for the status's own
    line."""
    message = text if isinstance(text, str) else ffi.string(text).decode(errors="replace")
    return BY_STATUS.get(status, ShmbridgeError)(
        message or ffi.string(lib.shmb_strerror(status)).decode()
    )


def raise_status(status: int, text: Any) -> NoReturn:
    """Raises the exception of a non-zero `status`, as error_of."""
    raise error_of(status, text)


def sandbox_remedy(error: OSError) -> str:
    """What helps where a sandbox refuses a system call; "" if that fails for another reason."""
    sandbox = error.errno in (errno.EPERM, errno.ENOSYS)
    return "let this process's sandbox (seccomp) allow that call" if sandbox else ""


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Names the system calls of the block in their errors, which do not. Errors:
    SystemCallError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ShmbridgeError):
            raise
        remedy = sandbox_remedy(error)
        why = f"{error.strerror or error}{remedy and f': {remedy}'}"
        raise SystemCallError(f"{what}: {why}") from error


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Calls `undo` if the block raises."""
    try:
        yield
    except BaseException:
        undo()
        raise


class Closing:
    """A base class: `with` closes it at its end."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Replaces a file, which a kill never leaves half written."""
    import secrets  # here, since each Python that uses the package has the errors
    from pathlib import Path

    path = Path(path).absolute()
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # others may write it, too
    with undone_by(lambda: beside.unlink(missing_ok=True)):
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)


def shortened(text: str, most: int = 500) -> str:
    """A text of at most so many characters; a cut text ends with "…"."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def ending(status: int) -> str:
    """How a process ended, by its exit status; negative: by a signal."""
    names = {each.value: each.name for each in signal.Signals}
    return f"exit {status}" if status >= 0 else names.get(-status, f"signal {-status}")


def printable(text: str) -> str:
    """The text with its control characters as escapes, since a terminal would obey them."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


LIBRARIES = (os.path.dirname(__file__), os.path.dirname(os.__file__), "<frozen ")


def own_line(error: BaseException) -> tuple[str, str]:
    """Where the last call is in code that belongs to no library, as "FILE:LINE: " and " in SOURCE":
    what numpy raises names no feature, but that line does. A `raise` shows nothing that the
    exception does not."""
    place = source = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(LIBRARIES) and "-packages/" not in file:
            source = shortened(linecache.getline(file, line).strip(), 100)
            place = f"{os.path.basename(file)}:{line}: "
    return place, f", in: {source}" if source and not source.startswith("raise") else ""


def error_text(error: BaseException) -> str:
    """An exception in one line: the caller's line that raised it, its type, its text, the line."""
    try:
        text = str(error)
    except Exception:  # its __str__ fails
        text = ""
    name = type(error).__name__
    place, source = own_line(error)
    return f"{place}{name}{text and f': {text}'}{source}"

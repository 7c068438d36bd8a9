"""One exception for each `shmb_status` of the C API; the comment names the constant."""

from __future__ import annotations

from typing import Any, NoReturn

from shmbridge._native import ffi, lib


class ShmbridgeError(Exception):
    """Anything that went wrong in shmbridge; the text says what was expected, what was found, and what to do."""

    status: int = 0


class InvalidError(ShmbridgeError, ValueError):  # SHMB_INVALID
    """An argument, URL or option makes no sense."""

    status = lib.SHMB_INVALID


class UnsupportedError(ShmbridgeError):  # SHMB_UNSUPPORTED
    """No runner of that scheme in this library."""

    status = lib.SHMB_UNSUPPORTED


class NoHostError(ShmbridgeError, ConnectionError):  # SHMB_NO_HOST
    """No live host of that name until the connect deadline."""

    status = lib.SHMB_NO_HOST


class BusyError(ShmbridgeError, ConnectionError):  # SHMB_BUSY
    """Every channel of the host is taken until the connect deadline."""

    status = lib.SHMB_BUSY


class InUseError(ShmbridgeError):  # SHMB_IN_USE
    """A live host has that name already."""

    status = lib.SHMB_IN_USE


class IncompatibleError(ShmbridgeError):  # SHMB_INCOMPATIBLE
    """The other side speaks another version of the protocol."""

    status = lib.SHMB_INCOMPATIBLE


class NotPermittedError(ShmbridgeError, PermissionError):  # SHMB_PERMISSION
    """The segment belongs to someone else or is open to others."""

    status = lib.SHMB_PERMISSION


class CorruptError(ShmbridgeError):  # SHMB_CORRUPT
    """Bytes that the protocol rules out."""

    status = lib.SHMB_CORRUPT


class HostGoneError(ShmbridgeError, ConnectionError):  # SHMB_HOST_GONE
    """The host died."""

    status = lib.SHMB_HOST_GONE


class RunnerGoneError(ShmbridgeError, ConnectionError):  # SHMB_RUNNER_GONE
    """The runner died or left before the reply."""

    status = lib.SHMB_RUNNER_GONE


class ClosedError(ShmbridgeError):  # SHMB_CLOSED
    """The host closed the bridge, or this handle is closed."""

    status = lib.SHMB_CLOSED


class DeadlineError(ShmbridgeError, TimeoutError):  # SHMB_TIMEOUT
    """The deadline passed; a late reply will be dropped."""

    status = lib.SHMB_TIMEOUT


class InterruptedCallError(ShmbridgeError):  # SHMB_INTERRUPTED
    """`shmb_interrupt` ended the wait."""

    status = lib.SHMB_INTERRUPTED


class TooLargeError(ShmbridgeError):  # SHMB_TOO_LARGE
    """The message does not fit its slot."""

    status = lib.SHMB_TOO_LARGE


class MismatchError(ShmbridgeError):  # SHMB_MISMATCH
    """Names, dtypes or shapes are not the expected ones."""

    status = lib.SHMB_MISMATCH


class InexactError(ShmbridgeError, ValueError):  # SHMB_INEXACT
    """A value has no exact counterpart in the wanted dtype."""

    status = lib.SHMB_INEXACT


class ModelError(ShmbridgeError):  # SHMB_MODEL
    """The model failed; the text is its own."""

    status = lib.SHMB_MODEL


class DroppedError(ShmbridgeError):  # SHMB_DROPPED
    """The host let the request go without a reply."""

    status = lib.SHMB_DROPPED


class ForkedError(ShmbridgeError):  # SHMB_FORKED
    """The handle was inherited through fork."""

    status = lib.SHMB_FORKED


class SystemCallError(ShmbridgeError, OSError):  # SHMB_SYSTEM
    """The operating system refused."""

    status = lib.SHMB_SYSTEM


class NoMemoryError(ShmbridgeError, MemoryError):  # SHMB_NO_MEMORY
    """Out of memory."""

    status = lib.SHMB_NO_MEMORY


BY_STATUS: dict[int, type[ShmbridgeError]] = {
    cls.status: cls
    for cls in vars().copy().values()
    if isinstance(cls, type) and issubclass(cls, ShmbridgeError) and cls.status
}


def raise_status(status: int, text: Any) -> NoReturn:
    """Raises the exception of a non-zero `status`; text: a C string, str, or empty for the status's own line."""
    message = text if isinstance(text, str) else ffi.string(text).decode(errors="replace")
    raise BY_STATUS.get(status, ShmbridgeError)(
        message or ffi.string(lib.shmb_strerror(status)).decode()
    )

"""The compiler's side, in Python."""

from __future__ import annotations

import math
import operator
import os
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from shmbridge import plugins, tensor
from shmbridge._native import ffi, lib
from shmbridge.errors import (
    BusyError,
    ClosedError,
    DeadlineError,
    InvalidError,
    NoHostError,
    raise_status,
)
from shmbridge.host import wait_code

CONNECT_SLICE = 0.05  # seconds between looks at signals while connecting
RETRY = {NoHostError.status, BusyError.status, DeadlineError.status}
PENDING = -1
KNOWN = 1024  # names whose arrays go the short way
_NOTHING: tuple[Any, Any, int, bytes, Any] = (None, None, 0, b"", None)


class Runner:
    """Asks for advice: what `connect` returns. For one thread at a time; several threads connect a runner each."""

    def __init__(
        self,
        url: str | None = None,
        *,
        connect_timeout: float | None = None,
        deadline: float | None = None,
        wait: str = "adaptive",
        retries: int = 0,
        backoff: float | None = None,
        default_advice: float | None = None,
    ) -> None:
        self._r: Any = ffi.NULL
        self._lock = threading.Lock()  # held while evaluate uses the handle
        self._closing = False
        if not 0 <= retries < 1 << 31:
            raise InvalidError(f"retries={retries!r}: expected 0 or more, below 2**31")
        options = {
            "deadline": deadline or 0,
            "wait": wait_code(wait),
            "retries": retries,
            "backoff": backoff or 0,
        }
        self._r = _open(url, connect_timeout, options, _number_text(default_advice))
        self._advice: dict[str, Any] = {}
        self._tensor = ffi.new("shmb_tensor *")
        self._known: dict[str, tuple[Any, Any, int, bytes, Any]] = {}

    def evaluate(self, features: Mapping[str, Any], *, dtype: Any = None) -> Any:
        """Sends features by name and waits for the advice: numpy arrays and scalars, Python numbers, str, lists, Ragged,
        anything with DLPack. Returns the one value where the advice has one field (a Python number for rank 0, else an
        array, str, list of str or Ragged, all copies), else a dict of values by name; `advice` has the dict always.

        dtype: what the host is asked to convert one advice to. Errors: as `shmb_evaluate`: HostGoneError, ClosedError,
        DeadlineError, ModelError, DroppedError, TooLargeError, MismatchError, InexactError, CorruptError, ForkedError;
        InvalidError for a value that is no tensor. Ctrl-C gives the question up.
        """
        want = lib.SHMB_ANY if dtype is None else tensor.code_of(np.dtype(dtype), "dtype")
        if not self._lock.acquire(blocking=False):
            raise InvalidError(
                "another thread waits for advice through this runner: connect a runner for each thread"
            )
        try:
            return self._ask(features, want)
        finally:
            self._lock.release()
            if self._closing:
                self._dispose()

    def _ask(self, features: Mapping[str, Any], want: int) -> Any:
        r = self._r
        if self._closing:
            raise ClosedError("this runner is closed: connect another")
        self._advice = {}
        status = PENDING
        try:
            for name, value in features.items():
                self._fill(name, value)
            status = lib.shmb_runner_start(r, want) or PENDING
            while status == PENDING:
                status = lib.shmb_runner_continue(r)
                if status == PENDING and self._closing:
                    raise ClosedError("another thread has closed this runner: connect another")
        except BaseException:  # of filling, or Ctrl-C, which may come before or behind any step
            if status == PENDING:
                lib.shmb_runner_abandon(r, lib.SHMB_INTERRUPTED)
            raise
        if status:
            _raise(status, lib.shmb_error_message(r))
        self._advice = advice = self._read()
        return next(iter(advice.values())) if len(advice) == 1 else advice

    def _fill(self, name: str, value: Any) -> None:
        """Adds one feature; arrays of a dtype and shape that this name had before go the short way."""
        if type(value) is np.ndarray:
            dtype, shape, code, text, dims = self._known.get(name, _NOTHING)
            if value.dtype is dtype and value.shape == shape and value.flags.c_contiguous:
                memory = lib.shmb_feature(self._r, text, code, len(shape), dims)
                if memory != ffi.NULL:
                    ffi.memmove(memory, value, value.nbytes)
                return
        field = tensor.as_field(name, value)
        tensor.write_field(lambda *a: lib.shmb_runner_add(self._r, *a), field)
        if field.values is value and len(self._known) < KNOWN:
            self._known[name] = (
                value.dtype,
                value.shape,
                field.code,
                name.encode(),
                ffi.new("int64_t[]", value.shape or (0,)),
            )

    @property
    def advice(self) -> dict[str, Any]:
        """All fields of the last advice by name; empty after an error."""
        return self._advice

    @property
    def defaulted(self) -> int:
        """How many evaluates took the default advice; 0 once closed."""
        return int(lib.shmb_defaulted(self._r))

    def _read(self) -> dict[str, Any]:
        t, advice = self._tensor, {}
        for i in range(lib.shmb_advice_count(self._r)):
            lib.shmb_advice_at(self._r, i, t)
            advice[ffi.string(t.name).decode()] = tensor.copy_value(t)
        return advice

    def set_deadline(self, seconds: float | None) -> None:
        """The deadline of later evaluates, in seconds; None: none."""
        if self._r != ffi.NULL:
            lib.shmb_set_deadline(self._r, seconds or 0)

    def close(self) -> None:
        """Gives the channel back. May be called twice; an evaluate under way in another thread ends with ClosedError."""
        self._closing = True
        self._dispose()

    def _dispose(self) -> None:
        """Frees the closed handle, unless an evaluate is under way, which will do that."""
        if self._lock.acquire(blocking=False):
            r, self._r = self._r, ffi.NULL
            lib.shmb_close(r)
            self._lock.release()
            plugins.raise_carried()  # of a plug-in's close

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_r", None):
            self.close()


def _number_text(value: float | None) -> Any:
    """A number as C's options have it."""
    if value is None:
        return ffi.NULL
    if isinstance(value, (float, np.floating)):
        return plugins.c_text(repr(float(value)))
    try:
        return plugins.c_text(str(operator.index(value)))
    except TypeError:
        raise InvalidError(f"default_advice={value!r}: expected an int or a float") from None


def _open(
    url: str | None,
    connect_timeout: float | None,
    chosen_options: dict[str, Any],
    default_advice: Any,
) -> Any:
    """shmb_open in slices, so that Ctrl-C works while there is no host."""
    start, chosen = time.monotonic(), os.environ.get("SHMBRIDGE_URL") if url is None else url
    text = ffi.NULL if chosen is None else plugins.resolve(chosen).encode()
    out, timeout = ffi.new("shmb_runner **"), ffi.new("double *")
    in_python = (chosen or "").partition("://")[
        0
    ] in plugins.python_schemes  # which sees Ctrl-C itself
    seconds = 0 if connect_timeout is None else connect_timeout or -1  # 0 means the default in C
    size = ffi.sizeof("shmb_options")
    options = ffi.new(
        "shmb_options *",
        {
            "size": size,
            "connect_timeout": seconds,
            "default_advice": default_advice,
            **chosen_options,
        },
    )
    while True:
        left = start + timeout[0] - time.monotonic() if timeout[0] else math.inf
        status = lib.shmb_open_slice(
            text, options, left if in_python else CONNECT_SLICE, timeout, out
        )
        if not status:
            return out[0]
        again = status in RETRY and time.monotonic() - start < timeout[0]
        if not again and not lib.shmb_open_end(out[0], status):
            return out[0]
        why = ffi.string(lib.shmb_error_message(out[0])).decode(errors="replace")
        lib.shmb_close(out[0])
        if not again:
            _raise(status, why)


def _raise(status: int, text: Any) -> NoReturn:
    """As raise_status, but what a plug-in raised that is no failure, such as Ctrl-C, as it is."""
    plugins.raise_carried()
    raise_status(status, text)


def connect(
    url: str | None = None,
    *,
    connect_timeout: float | None = None,
    deadline: float | None = None,
    wait: str = "adaptive",
    retries: int = 0,
    backoff: float | None = None,
    default_advice: float | None = None,
) -> Runner:
    """Opens a runner. url: "shm://NAME" or NAME; "pipe:///PATH?serdes=NAME", a SerDes of shmbridge.serdes; a scheme that a plug-in
    of shmbridge.runners has; None reads $SHMBRIDGE_URL. connect_timeout: seconds to wait for a host
    and a free channel; None: 10. Options in the URL win. deadline: seconds for one evaluate; None: no end, though the host's death ends it. wait:
    "adaptive", "spin" or "block".

    retries: how many times one evaluate connects and asks anew where no host serves (NoHostError, BusyError, HostGoneError,
    ClosedError, CorruptError), after pauses of `backoff` seconds (None: 0.05), each twice as long up to 16 times, less a random part.
    default_advice: what evaluate gives where nobody advises (these, DeadlineError, DroppedError and ModelError), in the wanted
    dtype; said once on stderr, counted by `Runner.defaulted`. Such a runner also connects without a host. In full: shmb_options.

    Errors: InvalidError, UnsupportedError, NoHostError, BusyError, DeadlineError (a live
    host did not answer), IncompatibleError, NotPermittedError, CorruptError, SystemCallError."""
    return Runner(
        url,
        connect_timeout=connect_timeout,
        deadline=deadline,
        wait=wait,
        retries=retries,
        backoff=backoff,
        default_advice=default_advice,
    )

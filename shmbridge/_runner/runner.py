"""The compiler's side, in Python."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, ParamSpec

import numpy as np
import numpy.typing as npt

from shmbridge import _fastpath
from shmbridge._native import ffi, lib
from shmbridge._runner.opening import number_text, open_runner, raise_error
from shmbridge._urls import plugins
from shmbridge._urls.options import Wait, wait_code
from shmbridge._values import dtypes, tensor
from shmbridge.errors import (
    BY_STATUS,
    ClosedError,
    InvalidError,
    ShmbridgeError,
)

P = ParamSpec("P")


class Stats(NamedTuple):
    """What a runner has counted since it was opened: `shmb_stats`."""

    questions: int
    failures: dict[type[ShmbridgeError], int]  # also those that a default advice replaced
    retries: int
    defaulted: int
    # seconds, where a clock was needed: in waits beyond some microseconds, and pauses before
    # retries
    waited: float


class Expected(NamedTuple):
    """A feature as the model declares it; a size that is None may be any."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]


class Runner(_fastpath.Asker):
    """Asks for advice: what `connect` returns.

    A runner is for one thread at a time. Several threads connect a runner each. `with` closes it at
    the end.
    """

    _gives_a_moment = True  # to a host that is there, where connect_timeout is shorter

    def __init__(
        self,
        url: str | None = None,
        *,
        connect_timeout: float = 0,
        deadline: float | None = None,
        wait: Wait = "adaptive",
        retries: int = 0,
        backoff: float | None = None,
        default_advice: float | None = None,
        log: Callable[[str], object] | None = None,
        label: str = "",
    ) -> None:
        self._r: Any = ffi.NULL
        self._log = ffi.NULL if log is None else ffi.new_handle(log)
        if not 0 <= retries < 1 << 31:
            raise InvalidError(f"retries={retries!r}: expected 0 or more, below 2**31")
        options = {
            "deadline": deadline or 0,
            "wait": wait_code(wait),
            "retries": retries,
            "backoff": backoff or 0,
        }
        options |= {"log": lib.shmb_python_log if log else ffi.NULL, "log_context": self._log}
        options["label"] = ffi.new("char[]", os.fsencode(label))
        self._r = open_runner(
            url, connect_timeout, options, number_text(default_advice), self._gives_a_moment
        )
        self._tensor = ffi.new("shmb_tensor *")
        self._address = int(ffi.cast("uintptr_t", self._r))  # for _fastpath

    def evaluate(self, features: Mapping[str, Any], *, dtype: npt.DTypeLike | None = None) -> Any:
        """Sends features and waits for the advice. Ctrl-C gives the question up.

        Args:
            features: Values by name: numpy arrays and scalars, Python numbers, str, lists,
                `Ragged`, anything with DLPack.
            dtype: What the host is asked to convert the advice to, which must then be one value.
                None: whatever the model gives.

        Returns:
            The value, where the advice has one field; a Python number for rank 0, else an array,
            str, list of str or `Ragged`. Otherwise a dict of values by name. All are copies.

        Raises:
            InvalidError: A value is no tensor, or another thread is asking through this runner.
            HostGoneError, ClosedError, CorruptError, ForkedError: The runner is of no more use.
                Connect another.
            DeadlineError: The deadline passed, or an earlier answer is late.
            ModelError, DroppedError: The model failed, or the host gave no reply.
            TooLargeError, MismatchError, InexactError: The request or the advice does not fit.
        """
        want = 0 if dtype is None else dtypes.code_of(np.dtype(dtype), "dtype")  # 0: SHMB_ANY
        return _fastpath.evaluate(
            self, features if type(features) is dict else dict(features.items()), want
        )

    def _refuse(self) -> NoReturn:
        if self._closing:
            raise ClosedError("this runner is closed: connect another")
        raise InvalidError(
            "another thread waits for advice through this runner: connect a runner for each thread"
        )

    def _go_on(self, status: int) -> None:
        """What _fastpath.evaluate leaves to us: a question that was asked and has that status.
        Whatever this raises gives it up."""
        while status == lib.PENDING:
            if self._closing:
                raise ClosedError("another thread has closed this runner: connect another")
            status = lib.shmb_runner_continue(self._r)
        if status:
            raise_error(status, lib.shmb_error_message(self._r))

    def _fill(self, name: str, value: Any) -> None:
        """Adds a feature that _fastpath.evaluate leaves to us."""
        field = tensor.as_field(name, value)
        tensor.write_field(lambda *a: lib.shmb_runner_add(self._r, *a), field)

    @property
    def advice(self) -> dict[str, Any]:
        """All fields of the last advice by name; empty after an error."""
        return self._advice or {}

    @property
    def defaulted(self) -> int:
        """How many evaluates took the default advice; 0 once closed."""
        return self.stats.defaulted

    @property
    def stats(self) -> Stats:
        """What it has counted since it was opened; zeros once closed."""
        s = ffi.new("shmb_stats *", {"size": ffi.sizeof("shmb_stats")})
        lib.shmb_runner_stats(self._r, s)
        failures = {
            kind: int(s.failures[status])
            for status, kind in BY_STATUS.items()
            if s.failures[status]
        }
        return Stats(s.questions, failures, s.retries, s.defaulted, s.waited)

    def expected(self, agent: str | None = None) -> dict[str, Expected] | None:
        """The features that the model behind the URL expects, by name; None where the runner does
        not know, as over shared memory.

        Args:
            agent: Which of the URL's agents is meant. It also expects its name as the feature
                "agent". None: the only model.
        """
        name, port, ports = (
            ffi.NULL if agent is None else plugins.c_text(agent),
            ffi.new("shmb_port *"),
            {},
        )
        count = lib.shmb_expected_count(self._r, name)
        for i in range(count):
            lib.shmb_expected_at(self._r, name, i, port)
            shape = tuple(None if size < 0 else size for size in port.dims[0 : port.rank])
            ports[ffi.string(port.name).decode()] = Expected(dtypes.dtype_of(port.dtype), shape)
        return None if count < 0 else ports

    def _copy(self, index: int) -> Any:
        """A field of the advice that _fastpath.evaluate leaves to us."""
        lib.shmb_advice_at(self._r, index, self._tensor)
        return tensor.copy_value(self._tensor)

    def set_deadline(self, seconds: float | None) -> None:
        """Sets the deadline of later evaluates.

        Args:
            seconds: 0 or more; 0 or None: the default, as in `connect`; `math.inf`: no limit. The
                next evaluate asks, also after a late answer.

        Raises:
            InvalidError: `seconds` is negative, or a NaN.
        """
        if seconds is not None and not seconds >= 0:
            raise InvalidError(f"a deadline of {seconds!r}: expected seconds, 0 or more, or None")
        if self._r != ffi.NULL:
            lib.shmb_set_deadline(self._r, seconds or 0)

    def close(self) -> None:
        """Gives the channel back. May be called twice; an evaluate under way in another thread ends
        with ClosedError."""
        self._closing = True
        self._dispose()

    def _dispose(self) -> None:
        """Frees the closed handle, unless an evaluate is under way, which will do that."""
        if self._hold():
            r, self._r = self._r, ffi.NULL
            lib.shmb_close(r)
            self._let_go()
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


def handle_of(runner: Runner) -> Any:
    """Its shmb_runner *, for C's functions."""
    return runner._r


def _write_log(context: Any, line: Any) -> None:
    ffi.from_handle(context)(ffi.string(line).decode(errors="replace"))


ffi.def_extern("shmb_python_log")(_write_log)


class TypedRunner(Runner):
    """A runner whose advice keeps its dtype also where it is one number."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._exact = True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While C asks through it. A close meanwhile takes effect at the end."""
        self._hold()
        try:
            yield
        finally:
            self._let_go()
            if self._closing:
                self._dispose()

    def interrupt(self) -> None:
        """Ends the evaluate that another thread waits in, with InterruptedCallError. Not beside
        close."""
        lib.shmb_interrupt(self._r)

    def _copy(self, index: int) -> Any:
        value = super()._copy(index)
        dense = self._tensor.kind == lib.SHMB_TENSOR
        return np.asarray(value, dtypes.dtype_of(self._tensor.dtype)) if dense else value


def _signed_as(
    maker: Callable[P, Runner],
) -> Callable[[Callable[..., Runner]], Callable[P, Runner]]:
    """For a function that passes all on: it has the parameters of what it calls."""

    def sign(function: Any) -> Any:
        function.__signature__ = inspect.signature(maker).replace(return_annotation="Runner")
        return function

    return sign


@_signed_as(Runner)
def connect(*url: Any, **options: Any) -> Runner:
    """Opens a runner. Options in the URL win over those here.

    Args:
        url: "shm://NAME" or NAME, or any URL of the page "Deployment". None: $SHMBRIDGE_URL.
        connect_timeout: Seconds to wait for a host that is not there. 0: do not wait. A host that
            is there has a second at least to accept.
        deadline: Seconds for one evaluate, with all its retries; `math.inf`: no limit, though the
            host's death ends it. None: what the host says, which is 10 unless its model is slow or
            it trains. After a late answer evaluate raises DeadlineError at once, until that answer
            has come; a model in this process is asked again after 16 times the time that was lost.
        wait: "adaptive": spin as long as it pays, then sleep. "spin": never sleep. "block": sleep
            at once.
        retries: How many times one evaluate connects and asks anew where no host serves
            (NoHostError, BusyError, HostGoneError, ClosedError, CorruptError).
        backoff: Seconds before the first retry. Each further pause is twice as long, up to 16 times
            the first, less a random part. None: 0.05.
        default_advice: What evaluate gives where nobody advises (the errors of `retries`,
            DeadlineError, DroppedError, ModelError), in the wanted dtype. One line says so, and
            `Runner.defaulted` counts. Such a runner also connects without a host.
        log: A function that gets that line. None: it goes to stderr.
        label: What this runner is about, e.g. the source file that is compiled: the host's
            `request.label`, over shm:// alone. Of more than 252 bytes the last.

    Raises:
        InvalidError: The URL or an option makes no sense.
        UnsupportedError: There is no runner for that scheme, or it does not load.
        NoHostError: No host of that name within the connect timeout.
        BusyError: All channels of the host are taken.
        DeadlineError: The host lives, and does not answer.
        IncompatibleError, NotPermittedError, CorruptError: There is a segment that cannot be used.
        SystemCallError: The operating system refused.
    """
    return Runner(*url, **options)

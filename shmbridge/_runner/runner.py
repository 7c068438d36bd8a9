"""The compiler's side, in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from shmbridge import _fastpath
from shmbridge._native import ffi, lib
from shmbridge._runner.opening import number_text, open_runner, raise_error
from shmbridge._urls import plugins
from shmbridge._urls.options import Wait, wait_code
from shmbridge._values import dtypes, tensor
from shmbridge.errors import BY_STATUS, ClosedError, Closing, InvalidError, ShmbridgeError


class Stats(NamedTuple):
    """Counters of a runner since it was opened: `shmb_stats`."""

    questions: int
    failures: dict[type[ShmbridgeError], int]  # also those that a default advice replaced
    retries: int
    defaulted: int
    # seconds, where a clock was needed: in waits beyond some microseconds, and pauses before
    # retries
    waited: float


class Runner(_fastpath.Asker, Closing):
    """Asks for advice. `connect` is its other name. Options in the URL take precedence over the
    arguments.

    Use a runner in one thread at a time, and connect one per thread. `with` closes it at the end.

    Args:
        url: "shm://NAME" or NAME, or any URL of the page "Deployment". None: $SHMBRIDGE_URL.
        connect_timeout: Seconds to wait for a host that is not running. 0: do not wait. A running
            host gets at least a second to accept.
        deadline: Seconds for one evaluate, including all retries; `math.inf`: no limit, except the
            host's death. None: the host's deadline, which is 10 unless its model is slow or it
            trains. After a late answer evaluate raises DeadlineError immediately, until that answer
            arrives. A model in this process is asked again after 16 times the lost time.
        wait: "adaptive": spin while that is efficient, then sleep. "spin": never sleep. "block":
            sleep immediately.
        retries: How often one evaluate reconnects and asks again after NoHostError, BusyError,
            HostGoneError, ClosedError or CorruptError.
        backoff: Seconds before the first retry. Each pause is twice as long as the previous one, up
            to 16 times the first, minus a random part. None: 0.05.
        default_advice: The number that evaluate returns, in the wanted dtype, after an error of
            `retries`, DeadlineError, DroppedError or ModelError. The first use is reported in one
            line; `Runner.defaulted` counts all. Such a runner also connects without a host.
        log: A function that receives that line. None: write it to stderr.
        label: A description of this runner, such as the source file being compiled: the host's
            `request.label`, only over shm://. Only the last 252 bytes are kept.

    Raises:
        InvalidError: The URL or an option is invalid.
        UnsupportedError: There is no runner for that scheme, or it cannot be loaded.
        NoHostError: No host of that name appeared within the connect timeout.
        BusyError: All channels of the host are taken.
        DeadlineError: The host lives, but does not answer.
        IncompatibleError, NotPermittedError, CorruptError: The segment cannot be used.
        SystemCallError: A system call failed.
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
            "connect_timeout": connect_timeout,
            "deadline": deadline or 0,
            "wait": wait_code(wait),
            "retries": retries,
            "backoff": backoff or 0,
            "default_advice": number_text(default_advice),
            "log": lib.shmb_python_log if log else ffi.NULL,
            "log_context": self._log,
            "label": ffi.new("char[]", os.fsencode(label)),
        }
        self._r = open_runner(url, options, self._gives_a_moment)
        self._tensor = ffi.new("shmb_tensor *")
        self._address = int(ffi.cast("uintptr_t", self._r))  # for _fastpath

    def evaluate(self, features: Mapping[str, Any], *, dtype: npt.DTypeLike | None = None) -> Any:
        """Sends features and waits for the advice. Ctrl-C abandons the question.

        Args:
            features: Values by name: numpy arrays and scalars, Python numbers, str, lists,
                `Ragged`, objects with DLPack.
            dtype: The dtype to which the host should convert the advice, which must then be one
                value. None: no preference.

        Returns:
            If the advice has one field, its value: a Python number for rank 0, else an array, str,
            list of str or `Ragged`. Otherwise a dict of values by name. All are copies.

        Raises:
            InvalidError: A value is no tensor, or another thread is using this runner.
            HostGoneError, ClosedError, CorruptError, ForkedError: The runner can no longer be used.
                Connect another.
            DeadlineError: The deadline passed, or an earlier answer is late.
            ModelError, DroppedError: The model failed, or the host did not reply.
            TooLargeError, MismatchError, InexactError: The request or the advice does not fit.
        """
        want = 0 if dtype is None else dtypes.code_of(np.dtype(dtype), "dtype")  # 0: SHMB_ANY
        return _fastpath.evaluate(
            self, features if type(features) is dict else dict(features.items()), want
        )

    def send(self, features: Mapping[str, Any], *, dtype: npt.DTypeLike | None = None) -> int:
        """Sends features without waiting for the advice, so that several questions are open at
        once: `shmb_send`.

        Over shm:// the host receives them while you go on, and sees them as a batch. If all its
        slots are in use, send waits until one is free. Every other URL, and a runner with retries,
        answers the question before send returns.

        Args:
            features: As for `evaluate`.
            dtype: As for `evaluate`.

        Returns:
            The ticket for `receive`. The runner keeps the answer until you receive it. 0: too many
            tickets are open (32,767).

        Raises:
            InvalidError: A value is no tensor, or another thread is using this runner. `receive`
                raises all other errors.
        """
        want = 0 if dtype is None else dtypes.code_of(np.dtype(dtype), "dtype")
        return _fastpath.send(
            self, features if type(features) is dict else dict(features.items()), want
        )

    def receive(self, ticket: int) -> Any:
        """Waits for the advice of a question that `send` sent, until its deadline. Ctrl-C abandons
        that question only.

        Args:
            ticket: What `send` returned. Each can be received once, in any order.

        Returns:
            As `evaluate`.

        Raises:
            InvalidError: The ticket is not open.
            ShmbridgeError: As `evaluate`.
        """
        return _fastpath.receive_advice(self, ticket)

    def _raise_in_use(self) -> NoReturn:
        if self._closing:
            raise ClosedError("this runner is closed: connect another")
        raise InvalidError(
            "this runner is in use, by another thread or an episode: connect another"
        )

    def _raise(self, status: int) -> NoReturn:
        """What a question has come to that _fastpath gives up."""
        if status == lib.PENDING:
            raise ClosedError("another thread has closed this runner: connect another")
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
        """How many evaluates returned the default advice; 0 once closed."""
        return self.stats.defaulted

    @property
    def stats(self) -> Stats:
        """Counters since it was opened; zeros once closed."""
        s = ffi.new("shmb_stats *", {"size": ffi.sizeof("shmb_stats")})
        lib.shmb_runner_stats(self._r, s)
        failures = {
            kind: int(s.failures[status])
            for status, kind in BY_STATUS.items()
            if s.failures[status]
        }
        return Stats(s.questions, failures, s.retries, s.defaulted, s.waited)

    def expected(self, agent: str | None = None) -> dict[str, dtypes.TensorSpec] | None:
        """The features that the model of the URL expects, by name. None: the runner does not know,
        as over shared memory.

        Args:
            agent: One of the URL's agents, which also expects its name as the feature "agent".
                None: the only model.
        """
        whose = ffi.NULL if agent is None else plugins.c_text(agent)
        port, ports = ffi.new("shmb_port *"), {}
        count = lib.shmb_expected_count(self._r, whose)
        for i in range(count):
            lib.shmb_expected_at(self._r, whose, i, port)
            shape = tuple(None if size < 0 else size for size in port.dims[0 : port.rank])
            name = ffi.string(port.name).decode()
            ports[name] = dtypes.TensorSpec(name, dtypes.dtype_of(port.dtype), shape)
        return None if count < 0 else ports

    def _copy(self, index: int) -> Any:
        """A field of the advice that _fastpath.evaluate leaves to us."""
        lib.shmb_advice_at(self._r, index, self._tensor)
        return tensor.copy_value(self._tensor)

    def set_deadline(self, seconds: float | None) -> None:
        """Sets the deadline of later evaluates.

        Args:
            seconds: 0 or more; 0 or None: the default, as in `connect`; `math.inf`: no limit. The
                next evaluate asks again, even after a late answer.

        Raises:
            InvalidError: `seconds` is negative or NaN.
        """
        if seconds is not None and not seconds >= 0:
            raise InvalidError(f"a deadline of {seconds!r}: expected seconds, 0 or more, or None")
        if self._r != ffi.NULL:
            lib.shmb_set_deadline(self._r, seconds or 0)

    def close(self) -> None:
        """Closes the runner. You may call it twice. A running evaluate in another thread ends with
        ClosedError."""
        self._closing = True
        self._dispose()

    def _dispose(self) -> None:
        """Frees the closed handle, unless an evaluate is under way, which will do that."""
        if self._hold():
            r, self._r = self._r, ffi.NULL
            lib.shmb_close(r)
            self._let_go()
            plugins.raise_carried()  # of a plug-in's close

    def __del__(self) -> None:
        if getattr(self, "_r", None):
            self.close()


def handle_of(runner: Runner) -> Any:
    return runner._r


@contextmanager
def in_use(runner: Runner) -> Iterator[None]:
    """While C asks through it. A close meanwhile takes effect at the end."""
    if runner._closing or not runner._hold():
        runner._raise_in_use()
    try:
        yield
    finally:
        runner._let_go()
        if runner._closing:
            runner._dispose()


def _write_log(context: Any, line: Any) -> None:
    ffi.from_handle(context)(ffi.string(line).decode(errors="replace"))


ffi.def_extern("shmb_python_log")(_write_log)


class TypedRunner(Runner):
    """A runner whose advice keeps its dtype also where it is one number."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._exact = True

    def interrupt(self) -> None:
        """Ends the evaluate that another thread waits in, with InterruptedCallError. Not beside
        close."""
        lib.shmb_interrupt(self._r)


connect = Runner

"""The model's side of a bridge."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

from shmbridge import _fastpath
from shmbridge._bridge import names, open_hosts, segment
from shmbridge._host.batch import Batch
from shmbridge._host.receiving import SLICE_NS, EnvironmentLoop, Receiving
from shmbridge._host.request import Request
from shmbridge._host.service import Model, Path, Question, Service
from shmbridge._host.serving import Serving
from shmbridge._native import lib
from shmbridge._urls import plugins
from shmbridge._urls.options import HostOptions, Wait, split, wait_code
from shmbridge._values.dtypes import TensorSpec
from shmbridge.errors import ClosedError, InvalidError

if TYPE_CHECKING:
    from shmbridge.logs import LogWriter


class Host(Receiving):
    """The model's side of a bridge, for up to `channels` runners at once.

    `with Host(…) as host` closes it at the end. Once the main thread has looped over it (`serve`,
    `batches`, `for request in host`), Ctrl-C ends the with block quietly. Without a with block it
    is a KeyboardInterrupt, except in `serve`, which returns; while a loop waits it closes the host.

    One thread receives. Any thread may reply. In a forked child, kept arrays can be read, every
    call raises ForkedError, and closing removes nothing.

    Args:
        name: "shm://NAME" or NAME. You can add options, which take precedence:
            "shm://NAME?channels=3&dir=/run/x" lies in that directory instead of /dev/shm. Another
            scheme, as in "pipe:///PATH?serdes=json", creates a host of that kind.
        channels: How many runners can connect at once, 1 to 256.
        slots: Message slots per runner: 2, 4, 8, 16 or 32. So many questions can be in flight, and
            a loop can keep arrays of all but one without copies.
        request_bytes: The maximum size of a request, as a number or a text such as "64K". The
            memory of two slots per runner is reserved in /dev/shm at the start, that of the others
            at first use.
        advice_bytes: The maximum size of an advice.
        header_bytes: Space for the names and dtypes of a message.
        wait: "adaptive": spin while that is efficient, then sleep. "spin": never sleep. "block":
            sleep immediately.
        features: The features that every request must have. None: any.
        advice: The advice that every reply must have. None: any.
        deadline: Seconds that an answer may take, for runners without their own deadline. None: 10.
            `math.inf`: no limit while the host lives, as for hosts of trainers.
        until_idle: Seconds without a runner after which the loop ends. None: never.

    Raises:
        InvalidError: An argument is invalid.
        InUseError: A live host has that name. (Files of a dead host are replaced.)
        SystemCallError: A system call failed, for example because /dev/shm is full.
        NotPermittedError: The name, or its directory, belongs to another user.
    """

    _worker, _workers = 0, 1  # its number among the hosts that share the name, and their number
    _private = False  # it tells its runners its name: its bridge is wherever there is room

    def __init__(
        self,
        name: str,
        *,
        channels: int = HostOptions.channels,
        slots: int = HostOptions.slots,
        request_bytes: int = HostOptions.request_bytes,
        advice_bytes: int = HostOptions.advice_bytes,
        header_bytes: int = HostOptions.header_bytes,
        wait: Wait = HostOptions.wait,
        features: Sequence[TensorSpec] | None = None,
        advice: Sequence[TensorSpec] | None = None,
        deadline: float | None = HostOptions.deadline,
        until_idle: float | None = HostOptions.until_idle,
    ) -> None:
        sizes = channels, slots, request_bytes, advice_bytes, header_bytes
        options = HostOptions(*sizes, wait, deadline, until_idle)
        options = options.with_options(split(str(name))[1])
        specs = [
            None if each is None else {spec.name: spec for spec in each}
            for each in (features, advice)
        ]
        bridge, self._plan = names.bridge_name(str(name)), options.plan()
        share = wait_code(options.wait), self._worker, self._workers, self._private
        own = segment.create(bridge, self._plan, *share)
        super().__init__(own, options.until_idle, *specs)
        open_hosts.opened(self)
        if options.deadline is not None:
            self._set_deadline(options.deadline)

    def __new__(cls, name: str = "", *args: Any, **options: Any) -> Host:
        """A host of the URL's scheme, as pathlib.Path() makes a path of the system."""
        scheme, mark, _ = str(name).partition("://")
        if cls is Host and mark and scheme != "shm":
            cls = plugins.find("hosts", scheme, f'there is no host for "{scheme}://"', "shm")
        return object.__new__(cls)

    update_wrapper(__new__, __init__, ())  # for its signature, which help() and editors show

    # ---- Life ----

    @property
    def url(self) -> str:
        """The URL that runners open. For grpc:// it does not contain their own certificates. With
        role=client it is the given URL."""
        return self._url

    @property
    def runners(self) -> int:
        """How many runners are attached."""
        return int(lib.shmb_host_attached(self._h))

    def _set_deadline(self, seconds: float) -> None:
        """Sets the deadline of runners that connect later and have none."""
        self._deadline = seconds
        lib.shmb_host_set_deadline(self._h, seconds)

    def close(self) -> None:
        """Removes the bridge: attached runners get SHMB_CLOSED. Kept arrays stay valid. You may
        call it twice."""
        if self._closed:
            return
        self._closed = True
        self._layouts.clear()
        self._pending.clear()
        if lib.shmb_host_forked(self._h):
            return
        try:
            self._segment.unlink()
        finally:
            lib.shmb_host_close(self._h)
            lib.shmb_host_wake(self._h)
            open_hosts.closed(self)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool | None:
        """Closes, and suppresses Ctrl-C once the main thread has looped over this host."""
        self.close()
        return self._interruptible and isinstance(error, KeyboardInterrupt)

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def __repr__(self) -> str:
        return f"<Host {self.url}{', closed' if self._closed else ''}>"

    def _delays(self, label: bytes, last: Any) -> bool:
        """Does a runner of that label wait for this host? last: a `shmb_delay *`, also of the next
        call."""
        return bool(lib.shmb_host_delays(self._h, label, last))

    # ---- Receive ----

    def _environment_loop(self) -> EnvironmentLoop:
        """For environments. A trainer may take any time."""
        if self._deadline is None:
            self._set_deadline(math.inf)
        # Pipes have rules of their own, and specs are checked in Python.
        plain = self._request_type is Request and self._receive is None
        direct = plain and self._advice is None and self._features is None
        receive = self._receive or partial(_fastpath.receive, self._address)
        address, channels = self._address, self._plan.channels
        calls = self._request_of, self._ends, self._check
        return EnvironmentLoop(address, channels, direct, receive, *calls)

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the host at {self.url} is closed")
        if lib.shmb_host_forked(self._h):
            self._ends(-lib.SHMB_FORKED)

    def __iter__(self) -> Iterator[Request]:
        """Yields requests until the host is closed, `until_idle`, or Ctrl-C, which closes the host.

        A request is yours as long as you refer to it, also beyond the loop's next one: it is
        answered with DroppedError when its last reference ends. The loop's own variable is a
        reference, too. A request that you hold for more than a second is reported once.

        `with request:` sends an exception of its block to the runner. The host stays open after an
        exception or a `break`, and you can start another loop.
        """
        return self._loop()

    def __aiter__(self) -> AsyncIterator[Request]:
        """The same for asyncio: `async for request in host`. A thread waits for requests, and your
        event loop gets them. A task that is cancelled loses none: the next loop gets it."""
        return self._loop_async()

    def receive(self, timeout: float | None = None) -> Request | None:
        """Waits for a request.

        As with a loop's request, it is yours until you answer it or let it go.

        Args:
            timeout: Seconds to wait. None: until the host is closed.

        Returns:
            The request, or None if none arrived in time.

        Raises:
            ClosedError: The host is closed.
            ForkedError: The host was inherited through fork.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._pending:
            left = max(0, until - time.monotonic()) * 1e9
            key = self._take(int(min(SLICE_NS, left)))
            if key is None:
                self._asked = True
            elif self._ends(key):
                raise ClosedError(f"the host at {self.url} is closed")
            elif not self._pending and time.monotonic() >= until:
                return None
        return self._pending.pop(0)

    def batches(self, max_size: int = 8, max_wait: float = 0) -> Iterator[Batch]:
        """Collects requests of several runners, for one forward pass.

        A batch ends early when every attached runner has asked. All its requests have the same
        names, dtypes and shapes; others wait for the next batch. A batch is yours as long as you
        refer to it, as a request is.

        Args:
            max_size: The maximum number of requests.
            max_wait: Seconds to wait for more requests after the first. 0: a batch has those that
                came while the one before was answered.

        Yields:
            `Batch` objects until the host is closed, `until_idle`, or Ctrl-C.

        Raises:
            InvalidError: `max_size` is below 1.
        """
        if max_size < 1:
            raise InvalidError(f"max_size={max_size}: expected 1 or more")
        return self._batches(max_size, max_wait)

    # ---- Serve ----

    def serve(
        self,
        model: Model,
        *,
        max_batch: int | None = None,
        max_wait: float = 0,
        record: Path | LogWriter | None = None,
    ) -> None:
        """Answers every request with model(request), until the host is closed, `until_idle`, or
        Ctrl-C, which closes the host.

        If the model raises, the runner gets an error (ModelError). The logger "shmbridge" gets the
        traceback of each kind of exception once.

        Args:
            model: Receives a `Request`, a mapping from names to arrays, strings and lists, which it
                may keep. Returns a value, or a dict of several by name. With batches it receives a
                `Batch`, whose arrays have an additional first dim, and returns a row (or list
                element) for each request.
            max_batch: The maximum number of requests per call. None: 1, and no `Batch`.
            max_wait: Seconds to wait for more requests in a batch, as for `batches`.
            record: A new file for features and the advice that runners received, in LLVM's training
                log format.

        Raises:
            InvalidError: `max_batch` is below 1.
            OSError: A file cannot be written.
        """
        questions = self._questions(max_batch, max_wait)
        service, ctrl_c = Service(model, record=record), contextlib.suppress(KeyboardInterrupt)
        with service, ctrl_c, self._looping(), self._answering_with(service):
            for question in questions:
                service.answer(question)

    def start(
        self,
        model: Model,
        *,
        max_batch: int | None = None,
        max_wait: float = 0,
        record: Path | LogWriter | None = None,
    ) -> Serving:
        """Serves in a thread, until the with block of the returned object ends::

            with Host("inliner") as host, host.start(model) as serving:
                ...
                serving.model = better  # from the next batch on

        Args:
            model, max_batch, max_wait, record: As in `serve`.

        Returns:
            The `Serving`, a context manager. Keep it.

        Raises:
            InvalidError: The host already serves, or an argument is invalid.
            OSError: A file cannot be written.
        """
        if self._serving is not None and self._serving.alive:
            raise InvalidError(
                f"{self.url} already serves: expected its with block to end first, or an "
                "assignment to its `model`"
            )
        questions = self._questions(max_batch, max_wait)
        serving = self._serving = Serving(self, Service(model, record=record), questions)
        return serving

    def _questions(self, max_batch: int | None, max_wait: float) -> Iterator[Question]:
        size = 1 if max_batch is None else max_batch
        return iter(self) if size == 1 else self.batches(size, max_wait)

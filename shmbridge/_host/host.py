"""The model's side of a bridge."""

from __future__ import annotations

import contextlib
import inspect
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from shmbridge import _fastpath
from shmbridge._bridge import open_hosts, segment
from shmbridge._host.batch import Batch
from shmbridge._host.receiving import SLICE_NS, Keys, Receiving
from shmbridge._host.request import Request
from shmbridge._host.service import Model, Path, Question, Service
from shmbridge._host.serving import Serving
from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._urls.options import HostOptions, Wait, wait_code
from shmbridge._values.dtypes import TensorSpec
from shmbridge.errors import ClosedError, InvalidError

if TYPE_CHECKING:
    from shmbridge._host.decision_log import DecisionLog
    from shmbridge.logs import LogWriter

MAX_WAIT = 50e-6  # seconds that a batch waits for more requests


class Host(Receiving):
    """A named meeting place for up to `channels` runners at once, and the model's side of it.

    `with Host(…) as host` closes it at the end. Ctrl-C in a loop over it (`serve`, `batches`,
    `for request in host`) closes it too, and ends the with block quietly. Without a with block it
    is a KeyboardInterrupt, except in `serve`, which returns.

    One thread receives. Any thread may reply. In a forked child the host is the parent's: kept
    arrays can be read, every call raises ForkedError, and closing removes nothing.

    Args:
        name: "shm://NAME" or NAME. Options may follow, and win:
            "shm://NAME?channels=3&request_bytes=64K". Another scheme, as in
            "pipe:///PATH?serdes=json", makes a host of that kind, which has options of its own.
        channels: Runners at once, 1 to 256.
        slots: Messages that a runner may have under way: 2, 4, 8, 16 or 32. More than 2 let a loop
            keep arrays of earlier requests without copies.
        request_bytes: Room for one request. All room, channels x slots, is reserved at once in
            /dev/shm.
        advice_bytes: Room for one advice.
        header_bytes: Room for names and dtypes.
        wait: "adaptive": spin as long as it pays, then sleep. "spin": never sleep. "block": sleep
            at once.
        features: What every request must hold. None: anything.
        advice: What every reply must hold. None: anything.
        deadline: Seconds that an answer may take, for runners that have no deadline. None: 10.
            `math.inf`: as long as the host lives, which is what trainers' hosts have.
        until_idle: Seconds without any runner after which the loop ends. None: never.

    Raises:
        InvalidError: An argument makes no sense.
        InUseError: A live host has that name. (A dead one's files are taken over.)
        SystemCallError: The operating system refused; for one, there is no room in /dev/shm.
        NotPermittedError: The name belongs to another user.
    """

    _closed = True  # until __init__ has opened it

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
        name, _, query = str(name).partition("?")
        room = channels, slots, request_bytes, advice_bytes, header_bytes
        chosen = HostOptions(*room, wait, deadline, until_idle).with_query(query)
        if chosen.deadline is not None and not chosen.deadline > 0:
            raise InvalidError(f"deadline={chosen.deadline!r}: expected seconds, more than 0")
        self.name = segment.bridge_name(name)
        self._url = f"shm://{self.name}"
        self._features = None if features is None else {spec.name: spec for spec in features}
        self._advice = None if advice is None else {spec.name: spec for spec in advice}
        self._until_idle = chosen.until_idle
        try:
            self._plan = plan = ffi.new(
                "shmb_plan *",
                {name: getattr(chosen, name) for name, _ in ffi.typeof("shmb_plan").fields},
            )
        except OverflowError as error:
            raise InvalidError(
                f"channels, slots and bytes must be positive numbers: {error}"
            ) from None
        created = segment.create_host(self.name, plan, wait_code(chosen.wait))
        self._h, self._session, self._inode = created
        self._closed = False
        open_hosts.opened(self)
        self._deadline: float | None = None
        if chosen.deadline is not None:
            self._set_deadline(chosen.deadline)
        self._address = int(ffi.cast("uintptr_t", self._h))
        # Called with the source and a timeout in ns.
        self._receive: Callable[[Any, int], int] = _fastpath.receive
        self._source: Any = self._address
        size = ffi.new("uint64_t *")
        base, h = lib.shmb_host_memory(self._h, size), self._h
        self._base = int(ffi.cast("uintptr_t", base))
        # The mapping and the handle live as long as this or any array over the memory.
        self._memory = ffi.buffer(ffi.gc(base, lambda _: lib.shmb_host_free(h)), size[0])
        super().__init__()
        # One reply of several fields at a time; a signal handler may reply too.
        self._building = threading.RLock()

    def __new__(cls, name: str = "", *args: Any, **options: Any) -> Host:
        scheme, mark, _ = str(name).partition("://")
        if cls is Host and mark and scheme != "shm":
            cls = plugins.find("hosts", scheme)
        return object.__new__(cls)

    __new__.__signature__ = inspect.signature(__init__)  # type: ignore[attr-defined] # for help() and editors

    # ---- Life ----

    @property
    def url(self) -> str:
        """What runners open. For grpc:// it lacks their own certificates; with role=client it is
        what was given."""
        return self._url

    @property
    def runners(self) -> int:
        """How many runners are attached."""
        return int(lib.shmb_host_attached(self._h))

    def _set_deadline(self, seconds: float) -> None:
        """For runners that connect from now on and have no deadline."""
        self._deadline = seconds
        lib.shmb_host_set_deadline(self._h, seconds)

    def close(self) -> None:
        """Removes the bridge: attached runners get SHMB_CLOSED. Arrays that are kept stay valid.
        May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._requests.clear()
        self._left_over.clear()
        if lib.shmb_host_forked(self._h):
            return
        try:
            segment.unlink_bridge(self.name, self._session, self._inode)
        finally:
            lib.shmb_host_close(self._h)
            lib.shmb_host_wake(self._h)
            open_hosts.closed(self)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Closes. The Ctrl-C that ended this host's loop ends here too: that is how a host ends."""
        self.close()
        return self._interrupted and isinstance(error, KeyboardInterrupt)

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

    def _by_key(self) -> Keys:
        """For environments. A trainer may take any time."""
        if self._deadline is None:
            self._set_deadline(math.inf)
        # Pipes have rules of their own, and specs are checked in Python.
        plain = self._request_type is Request and self._source is self._address
        direct = plain and self._advice is None and self._features is None
        receive = partial(self._receive, self._source)
        address, channels = self._address, self._plan.channels
        calls = self._take, self._came, self._ends, self._check
        return Keys(address, channels, direct, receive, *calls)

    def _came(self) -> None:
        self._idle_since = time.monotonic()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the host at {self.url} is closed")
        if lib.shmb_host_forked(self._h):
            self._ends(-lib.SHMB_FORKED)

    def __iter__(self) -> Iterator[Request]:
        """Yields requests until closed, `until_idle`, or Ctrl-C, which closes the host.

        An unanswered request is answered with an error when the next one is asked for, unless
        someone besides the loop holds it. The object is used again for a later request of the same
        kind; keep its arrays rather than itself.

        An exception that leaves the loop is its request's error; the host stays open, and another
        loop may go on. Leaving by `break` leaves the request to whoever holds it.
        """
        return _fastpath.loop(self._loop())

    def receive(self, timeout: float | None = None) -> Request | None:
        """Waits for a request.

        Unlike the loop's, it is yours until you answer it or let it go. To hand requests to other
        threads, take them from here.

        Args:
            timeout: Seconds to wait. None: until the host is closed.

        Returns:
            The request, or None when none came in time.

        Raises:
            ClosedError: The host is closed.
            ForkedError: The host was inherited through fork.
        """
        left_over = self._next_left_over()
        if left_over is not None:
            return left_over
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._release_dead()
            left = (
                SLICE_NS
                if until is None
                else int(min(SLICE_NS, max(0, (until - time.monotonic()) * 1e9)))
            )
            key = self._receive(self._source, left)
            if key >= 0:
                self._idle_since = time.monotonic()
                request = self._meet(key)
                if request is not None:
                    return request
            elif self._ends(key):
                raise ClosedError(f"the host at {self.url} is closed")
            elif until is not None and time.monotonic() >= until:
                return None

    def batches(self, max_size: int = 8, max_wait: float = MAX_WAIT) -> Iterator[Batch]:
        """Requests of several runners together, for one forward pass.

        A batch ends early once every attached runner has asked. All its requests have the same
        names, dtypes and shapes; others wait for the next batch. What a turn of the loop leaves
        unanswered is answered with an error.

        Args:
            max_size: The largest number of requests.
            max_wait: Seconds to wait for more requests after the first.

        Yields:
            One `Batch` after another, until closed, `until_idle`, or Ctrl-C.

        Raises:
            InvalidError: `max_size` is below 1.
        """
        if max_size < 1:
            raise InvalidError(f"max_size={max_size}: expected 1 or more")
        return _fastpath.loop(self._batches(max_size, max_wait))

    # ---- Serve ----

    def serve(
        self,
        model: Model,
        *,
        max_batch: int | None = None,
        max_wait: float = MAX_WAIT,
        pad_to: int | None = None,
        log: Path | DecisionLog | None = None,
        record: Path | LogWriter | None = None,
    ) -> None:
        """Answers every request with model(request), until closed, `until_idle`, or Ctrl-C, which
        closes the host.

        What the model raises is an error reply (ModelError on the other side). The logger
        "shmbridge" gets it with its traceback, once for each kind.

        Args:
            model: Gets a `Request`, a mapping from names to arrays, strings and lists, which it may
                keep. Returns a value, or a dict of several by name. With batches it gets a `Batch`,
                whose arrays have one more dim in front, and returns a row (or list element) for
                each request.
            max_batch: How many requests one call answers at most. None: `pad_to`, or 1.
            max_wait: Seconds that a batch waits for more requests.
            pad_to: The model always gets a `Batch` of so many rows, the last ones copies, so that a
                request's numbers do not depend on how many others came with it.
            log: A file to which every decision is appended, as a line of JSON: time, features,
                advice or error.
            record: A new file for features and what the runners got as advice, in LLVM's training
                log format.

        Raises:
            InvalidError: `max_batch` is greater than `pad_to`.
            OSError: A file cannot be written.
        """
        service, questions = self._served(model, max_batch, max_wait, pad_to, log, record)
        with service, contextlib.suppress(KeyboardInterrupt):
            for question in questions:
                service.answer(question)

    def start(self, model: Model, **options: Any) -> Serving:
        """Answers as `serve` does, in a thread, until the with block of what it returns ends::

            with Host("inliner") as host, host.start(model) as serving:
                ...
                serving.model = better  # from the next batch on

        Args:
            model: As `serve`.
            options: As `serve`: max_batch, max_wait, pad_to, log, record.

        Returns:
            The `Serving`, a context manager. Keep it.

        Raises:
            InvalidError: The host serves already, or as `serve`.
            OSError: A file cannot be written.
        """
        if self._rest.serving is not None and self._rest.serving.alive:
            raise InvalidError(
                f"{self.url} already serves: expected its with block to end first, or an "
                "assignment to its `model`"
            )
        return Serving(self._rest, self._h, *self._served(model, **options))

    def _served(
        self,
        model: Model,
        max_batch: int | None = None,
        max_wait: float = MAX_WAIT,
        pad_to: int | None = None,
        log: Path | DecisionLog | None = None,
        record: Path | LogWriter | None = None,
    ) -> tuple[Service, Iterator[Question]]:
        """Who answers, and what."""
        if pad_to is not None and not (max_batch or 1) <= pad_to:
            raise InvalidError(
                f"max_batch={max_batch}, pad_to={pad_to}: expected max_batch no larger than pad_to"
            )
        size = max_batch or pad_to or 1
        questions = self.batches(size, max_wait) if size > 1 or pad_to else iter(self)
        return Service(model, pad_to=pad_to, log=log, record=record), questions

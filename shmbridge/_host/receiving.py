"""How a host receives: single requests, or batches of similar ones."""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shmbridge import _fastpath
from shmbridge._bridge.segment import OwnSegment
from shmbridge._host.batch import Batch
from shmbridge._host.layout import Layout
from shmbridge._host.request import Request, fail_with_status
from shmbridge._host.service import Service, logger
from shmbridge._native import ffi, lib
from shmbridge._values.dtypes import TensorSpec
from shmbridge.errors import ForkedError, MismatchError, ShmbridgeError, raise_status

SLICE_NS = 100_000_000  # a wait asks after signals at least this often
CACHED = 1024  # layouts, each of a slot and the dims of a message
FORGOTTEN = 1.0  # seconds without a reply after which a held request is told of
TURNS_PER_LOOK = 64
FOREVER = 1e9  # seconds; inf is no int


@dataclass(frozen=True)
class EnvironmentLoop:
    """What environments, which have their own loops, need of a host. A request is known by its
    key."""

    address: int
    channels: int
    direct: bool  # C alone sees requests and replies
    receive: Callable[[int], int]  # within ns: a key or -shmb_status
    take: Callable[[int], Request | None]
    ends: Callable[[int], bool]
    check: Callable[[], None]  # ClosedError, ForkedError


class Receiving:
    """The base of a host: its loops, and its requests."""

    _request_type: type[Request] = Request
    _looped = False
    _interruptible = False  # a loop of the main thread, where Ctrl-C comes, has begun
    _forgotten_reported = _removal_reported = _conversion_reported = False
    _serving: Any = None  # the Serving that runs
    _deadline: float | None = None
    _has_idle_runners = False  # a runner may be attached that no compiler uses
    _closed = True  # until __init__ has opened it

    def __init__(
        self,
        segment: OwnSegment,
        until_idle: float | None,
        features: dict[str, TensorSpec] | None,
        advice: dict[str, TensorSpec] | None,
    ) -> None:
        self._segment, self._h = segment, segment.host
        self.name, self._url = segment.name, f"shm://{segment.name}"
        self._layouts: dict[int, Layout] = {}  # by key
        self._pending: list[Request] = []  # received, and nobody's yet
        self._closed = False  # from here on an interrupt leaves a host that close() can end
        self._address = int(ffi.cast("uintptr_t", self._h))  # for _fastpath
        self._memory = segment.memory()
        self._until_idle, self._features, self._advice = until_idle, features, advice
        self._asked = False  # since idleness was last looked at
        self._service: Service | None = None  # that answers, while it does
        self._idle_since = self._looked = time.monotonic()
        self._open_then: set[tuple[int, int]] = set()  # requests without a reply at that look
        # Called with a timeout in ns; None: _fastpath.receive.
        self._receive: Callable[[int], int] | None = None
        self._turns = 0  # of receive() and of an asynchronous loop

    @property
    def runners(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def _looping(self) -> Iterator[None]:
        """A loop. Ctrl-C in it closes the host. After its end, runners that wait report that no
        loop is running."""
        self._looped = True
        self._interruptible |= threading.current_thread() is threading.main_thread()
        try:
            yield
        except KeyboardInterrupt:
            self.close()
            raise
        finally:
            lib.shmb_host_rest(self._h)

    @contextlib.contextmanager
    def _answering_with(self, service: Service) -> Iterator[None]:
        """In the block the service can end the loop, and counts replies that fail."""
        self._service, self._conversion_reported = service, False
        try:
            yield
        finally:
            if self._service is service:  # a stopped one may still compute while the next begins
                self._service = None

    def _conversion_failed(self, error: ShmbridgeError) -> None:
        """A reply did not fit the dtype that its runner wants: the log gets the first one."""
        if self._service is not None:
            self._service.errors += 1
        if not self._conversion_reported:
            self._conversion_reported = True
            logger.error("error, sent to the runner: %s", error)

    def _report_forgotten(self, now: float) -> None:
        """Reports once that a request has had no reply for long while the loop waits for others."""
        if self._forgotten_reported or now - self._looked < FORGOTTEN:
            return
        still_open = {
            (key, layout.made)
            for key, layout in tuple(self._layouts.items())
            if lib.shmb_host_message(self._h, key) != ffi.NULL
        }
        if forgotten := still_open & self._open_then:
            self._forgotten_reported = True
            layout = self._layouts[min(forgotten)[0]]
            logger.warning(
                "a request has had no reply for a second: expected reply(), fail(), or the end of "
                "the last reference to it (del); its runner waits until its deadline: %s",
                layout.signature,
            )
        self._open_then, self._looked = still_open, now

    def _requests(self, timeout_ns: int = SLICE_NS) -> Any:
        return _fastpath.Requests(
            self._pending, self._address, self._receive, self._layouts, timeout_ns
        )

    def _take(self, timeout_ns: int) -> int | None:
        """Waits for one request in `_pending`, which is empty. Else: a key, or -shmb_status."""
        requests = self._requests(timeout_ns)
        self._pending.extend(islice(requests, 1))
        self._turns += 1
        if self._turns % TURNS_PER_LOOK == 0:  # while requests flow, nothing else looks around
            self._ends(-lib.SHMB_INTERRUPTED)
        return None if self._pending else requests.key

    def _loop(self) -> Iterator[Request]:
        requests = self._requests()
        with self._looping():
            while True:
                yield from requests  # no name of ours: each is the caller's alone
                self._asked |= requests.asked
                requests.asked = False
                if self._ends(requests.key):
                    return

    async def _loop_async(self) -> AsyncIterator[Request]:
        import asyncio

        with self._looping(), ThreadPoolExecutor(1, "shmbridge") as thread:
            while True:
                if not self._pending:
                    waiting = asyncio.wrap_future(thread.submit(self._take, SLICE_NS))
                    try:
                        await asyncio.wait([waiting])
                    finally:  # cancelled: what came meanwhile is the next loop's
                        if not waiting.done():
                            lib.shmb_host_wake(self._h)
                    if (key := waiting.result()) is not None and self._ends(key):
                        return
                if self._pending:
                    yield self._pending.pop(0)
                    self._asked = True

    def _batches(self, max_size: int, max_wait: float) -> Iterator[Batch]:
        plain, batch = self._receive is None and not self._has_idle_runners, Batch()
        wait = int(min(max_wait, FOREVER) * 1e9)
        how = self._address, self._receive, self._layouts, max_size, wait
        with self._looping():
            while True:
                key = batch._collect(self._pending, *how, -1 if plain else self.runners)
                if key is not None and not self._ends(key):
                    continue
                if batch.requests:
                    done, batch = [batch], Batch()
                    yield done.pop()
                    self._asked = True
                elif key is not None:
                    return

    def _request_of(self, key: int) -> Request | None:
        """The request of a key, for environments."""
        self._asked = True
        request: Request | None = _fastpath.request(self._layouts, key)
        return self._first_request(key) if request is None else request

    def _first_request(self, key: int) -> Request | None:
        """The request of a key without a layout, which is made here. None: it is not what the host
        expects, which its runner gets as an error. Of too many layouts the older half goes."""
        message = lib.shmb_host_message(self._h, key)
        if message == ffi.NULL:
            return None
        layouts = self._layouts
        if len(layouts) >= CACHED:
            for old in list(layouts)[: CACHED // 2]:
                del layouts[old]
        try:
            layouts[key] = Layout(self, key, message, self._request_type)
            request: Request = _fastpath.request(layouts, key)
        except Exception as error:  # nothing that a runner sends may end the loop
            text = str(error).encode(errors="replace")
            lib.shmb_host_reply_error(self._h, key, False, lib.SHMB_UNSUPPORTED, text, len(text))
            return None
        why = layouts[key].mismatch(self._features)
        if why:
            del layouts[key]
            fail_with_status(request, MismatchError(why))
            return None
        return request

    def _ends(self, key: int) -> bool:
        """Does the loop end with this key or -shmb_status? A request without a layout becomes
        pending. Errors: ForkedError, and those of other statuses."""
        if key >= 0:
            if (request := self._first_request(key)) is not None:
                self._pending.append(request)
            return False
        if key == -lib.SHMB_CLOSED or self._closed:
            return True
        if self._service is not None and self._service.stopping:
            return True
        if key == -lib.SHMB_FORKED:
            raise ForkedError(
                f"the host at {self._url} was inherited through fork: make another in the child"
            )
        if key not in (-lib.SHMB_TIMEOUT, -lib.SHMB_INTERRUPTED):
            raise_status(-key, "")
        now = time.monotonic()
        if self._asked or self.runners:
            self._idle_since, self._asked = now, False
        if self._looped:
            self._report_forgotten(now)
        if self._was_removed() and not self.runners:
            return True
        return self._until_idle is not None and now - self._idle_since >= self._until_idle

    def _was_removed(self) -> bool:
        """Did somebody remove the file by which new runners find this host? Reported once."""
        removed = not self._segment.has_name()
        if removed and not self._removal_reported:
            self._removal_reported = True
            logger.error(
                "%s: expected its file, but somebody has removed it (systemd's "
                "RemoveIPC, for example: see the troubleshooting page). No new compiler finds this "
                "host, so it ends when none is connected",
                self._url,
            )
        return removed

    def answer_by(self, runner: Any, answered: Callable[[int], object]) -> None:
        """From now on C answers with this runner, without Python, and `answered` gets the number of
        answers. The loop gets only requests that the runner cannot answer."""
        count = ffi.new("int64_t *")
        if self._receive is not None:  # what comes otherwise is Python's
            return

        def serve(timeout_ns: int) -> int:
            key = int(lib.shmb_serve(self._h, runner, timeout_ns, count))
            if count[0]:
                self._asked = True
                answered(count[0])
            return key

        self._receive = serve

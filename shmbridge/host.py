"""The model's side of a bridge."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from sys import getrefcount
from types import TracebackType
from typing import Any

from shmbridge import _hot, plugins, segment
from shmbridge._native import ffi, lib
from shmbridge.batch import Batch
from shmbridge.errors import ClosedError, ForkedError, InvalidError, raise_status
from shmbridge.request import Request
from shmbridge.tensor import TensorSpec, code_of

SLICE_NS = 100_000_000  # a wait asks after signals at least this often
MAX_WAIT = 50e-6  # seconds that a batch waits for more requests
CACHED = 1024  # requests of known layout, dims and slot
WAITS = {
    "adaptive": lib.SHMB_WAIT_ADAPTIVE,
    "spin": lib.SHMB_WAIT_SPIN,
    "block": lib.SHMB_WAIT_BLOCK,
}

_open_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for host in list(_open_hosts):
        host.close()


def _loop_refs() -> int:
    """What getrefcount says in Host.__iter__ of a request that only the cache, the loop's frame and the caller's loop
    variable hold: Pythons differ in what a call adds."""
    seen: list[int] = []

    def requests() -> Iterator[object]:
        get = {0: object()}.get
        while True:
            request = get(0)
            seen.append(getrefcount(request))
            yield request

    for _request in requests():
        if len(seen) == 2:
            return seen[1]
    raise AssertionError("the loop above has no end")


_LOOP_REFS = _loop_refs()

Model = Callable[[Mapping[str, Any]], Any]


def wait_code(wait: str) -> int:
    """The C constant of a way to wait."""
    try:
        return int(WAITS[wait])
    except KeyError:
        raise InvalidError(f"wait={wait!r}: expected {', '.join(WAITS)}") from None


class Host:
    """A named meeting place, made here, for up to `channels` runners at once.

    name: "shm://NAME" or NAME; another scheme, as in "pipe:///PATH?serdes=json", makes a host of that kind (shmbridge.hosts),
    which has its own options. channels: 1 to 256. slots: messages that a runner may have under way, a power of two from
    2 to 32; more than 2 let a loop keep arrays of earlier requests without copies. request_bytes, advice_bytes,
    header_bytes: room of one slot; all of it, channels x slots, is reserved at once in /dev/shm. wait: "adaptive" (spin
    as long as it pays, then sleep), "spin" or "block". features, advice: what every message must hold. until_idle: the
    loop ends after so many seconds without any runner.

    Errors: InvalidError, InUseError (a live host has that name; a dead one's files are taken over), SystemCallError (for
    one, no room in /dev/shm), NotPermittedError. One thread receives; any thread may reply. In a forked child the host
    is the parent's: kept arrays can be read, every call is ForkedError, and closing removes nothing.
    """

    _request_type = Request

    def __new__(cls, name: str = "", *args: Any, **options: Any) -> Host:
        scheme, mark, _ = str(name).partition("://")
        if cls is Host and mark and scheme != "shm":
            cls = plugins.find("hosts", scheme)
        return object.__new__(cls)

    def __init__(
        self,
        name: str,
        *,
        channels: int = 16,
        slots: int = 2,
        request_bytes: int = 1 << 20,
        advice_bytes: int = 1 << 16,
        header_bytes: int = 1 << 15,
        wait: str = "adaptive",
        features: Sequence[TensorSpec] | None = None,
        advice: Sequence[TensorSpec] | None = None,
        until_idle: float | None = None,
    ) -> None:
        self._closed = True
        self.name = segment.bridge_name(name)
        self._url = f"shm://{self.name}"
        self._features = None if features is None else {spec.name: spec for spec in features}
        self._advice = None if advice is None else {spec.name: spec for spec in advice}
        self._until_idle = until_idle
        try:
            plan = ffi.new(
                "shmb_plan *", (channels, slots, header_bytes, request_bytes, advice_bytes)
            )
        except OverflowError as error:
            raise InvalidError(
                f"channels, slots and bytes must be positive numbers: {error}"
            ) from None
        self._h, self._session = segment.create_host(self.name, plan, wait_code(wait))
        self._closed = False
        _open_hosts.add(self)
        self._address = int(ffi.cast("uintptr_t", self._h))
        self._receive: Callable[[Any, int], int] = (
            _hot.receive
        )  # called with the source and a timeout in ns
        self._source: Any = self._address
        size = ffi.new("uint64_t *")
        base, h = lib.shmb_host_memory(self._h, size), self._h
        self._base = int(ffi.cast("uintptr_t", base))
        # The mapping and the handle live as long as this or any array over the memory.
        self._memory = ffi.buffer(ffi.gc(base, lambda _: lib.shmb_host_free(h)), size[0])
        self._requests: dict[int, Request] = {}
        self._kept: dict[int, Request] = {}  # answered, but their slots' views live on
        self._left_over: list[Request] = []  # did not fit the last batch
        self._building = (
            threading.RLock()
        )  # one reply of several fields at a time; a signal handler may reply too
        self._idle_since = time.monotonic()

    # ---- Life ----

    @property
    def url(self) -> str:
        """What runners open. Of grpc:// without their own certificates; with role=client what was given."""
        return self._url

    @property
    def runners(self) -> int:
        """How many runners are attached."""
        return int(lib.shmb_host_attached(self._h))

    def close(self) -> None:
        """Removes the bridge: attached runners get SHMB_CLOSED. Arrays that are kept stay valid. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._requests.clear()
        self._left_over.clear()
        if lib.shmb_host_forked(self._h):
            return
        try:
            segment.unlink_bridge(self.name, self._session)
        finally:
            lib.shmb_host_close(self._h)
            lib.shmb_host_wake(self._h)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<Host {self.url}{', closed' if self._closed else ''}>"

    # ---- Receive ----

    def __iter__(self) -> Iterator[Request]:
        """Requests, one after another, until closed, Ctrl-C, or `until_idle`.

        An unanswered request is answered with an error when the next one is asked for, unless someone besides the loop
        holds it. The object is used again for a later request of the same kind; keep its arrays rather than itself.
        """
        receive, source, requests, kept = self._receive, self._source, self._requests, self._kept
        asked = False
        while self._left_over:
            yield self._left_over.pop(0)
        while not self._closed:
            if kept:
                self._release_dead()
            key = receive(source, SLICE_NS)
            if key < 0:
                if asked:
                    self._idle_since = time.monotonic()
                    asked = False
                if self._ends(key):
                    return
                continue
            asked = True
            request = requests.get(key)
            if request is not None and getrefcount(request) <= _LOOP_REFS:  # nobody will miss it
                request._renew()
            else:
                request = self._cache(key)
                if request is None:
                    continue
            try:
                yield request
            except GeneratorExit:
                requests.pop(key, None)  # the loop is left: the request is whose who still holds it
                raise
            if request._open:
                if getrefcount(request) <= _LOOP_REFS:
                    request._drop()
                else:
                    requests.pop(key, None)  # someone else's now, until it is answered or collected

    def receive(self, timeout: float | None = None) -> Request | None:
        """The next request, or None when none came within `timeout` seconds (None: wait until closed).

        Unlike the loop's, it is yours until you answer it or let it go: hand requests to other threads from here, not with
        next(). Errors: ClosedError, ForkedError.
        """
        if self._left_over:
            return self._left_over.pop(0)
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
        """Requests of several runners together, for one forward pass: as many as come within max_wait seconds of the
        first, at most max_size; a batch ends early once every attached runner has asked. All requests of a batch have
        the same names, dtypes and shapes; others wait for the next batch. A batch ends with its turn of the loop: what it
        has left unanswered is answered with an error then."""
        if max_size < 1:
            raise InvalidError(f"max_size={max_size}: expected 1 or more")
        while not self._closed:
            first = self._left_over.pop(0) if self._left_over else self._first()
            if first is None:
                return
            batch = Batch(self._collect(first, max_size, max_wait))
            del first
            yield batch
            batch._end()

    def _first(self) -> Request | None:
        while True:
            self._release_dead()
            key = self._receive(self._source, SLICE_NS)
            if key >= 0:
                self._idle_since = time.monotonic()
                request = self._take(key)
                if request is not None:
                    return request
            elif self._ends(key):
                return None

    def _take(self, key: int) -> Request | None:
        """The cached request of a key where only the cache holds it, else a new one in its place."""
        request = self._requests.get(key)
        if (
            request is None or getrefcount(request) >= _LOOP_REFS
        ):  # as in the loop, but there is no loop variable
            return self._cache(key)
        request._renew()
        return request

    def _cache(self, key: int) -> Request | None:
        """A new request, kept for later ones of the same key. When there are too many, the older half makes room."""
        request = self._meet(key)
        if request is not None:
            if len(self._requests) >= CACHED:
                for old in list(self._requests)[: CACHED // 2]:
                    if not self._requests[old]._open:
                        del self._requests[old]
            self._requests[key] = request
        return request

    def _collect(self, first: Request, max_size: int, max_wait: float) -> list[Request]:
        alike = [first]
        others: list[Request] = []
        for request in self._left_over:
            (
                alike if len(alike) < max_size and request.signature == first.signature else others
            ).append(request)
        until = time.monotonic() + max_wait
        while len(alike) < max_size and lib.shmb_host_waiting(self._h) < self.runners:
            left = until - time.monotonic()
            key = self._receive(self._source, int(min(SLICE_NS, max(0, left * 1e9))))
            came = self._take(key) if key >= 0 else None
            if came is not None:
                (alike if came.signature == first.signature else others).append(came)
            elif key in (-lib.SHMB_CLOSED, -lib.SHMB_FORKED) or (left <= 0 and key < 0):
                break
        self._left_over = others
        return sorted(
            alike, key=Request._place_in_segment
        )  # by channel, not by arrival: rows then lie evenly more often

    def _meet(self, key: int) -> Request | None:
        """A new Request for a key; None when it is not what this host expects, which its runner is then told."""
        message = lib.shmb_host_message(self._h, key)
        if message == ffi.NULL:
            return None
        known = self._requests.get(key)
        request = self._request_type(self, key, message)
        if known is not None:
            known._open = False
        mismatch = self._mismatch(request)
        if mismatch:
            request._fail(lib.SHMB_MISMATCH, mismatch)
            return None
        return request

    def _mismatch(self, request: Request) -> str:
        specs, found = self._features, request._places
        if specs is None:
            return ""
        fits = found.keys() == specs.keys() and all(
            place.kind == lib.SHMB_TENSOR
            and place.code == code_of(specs[name].dtype, name)
            and specs[name].matches(specs[name].dtype, place.shape)
            for name, place in found.items()
        )
        return (
            ""
            if fits
            else f"the host expects {', '.join(map(str, specs.values()))}; the runner sent {request.signature}"
        )

    def _ends(self, key: int) -> bool:
        """Nothing was received: is that the end of the loop? Raises where it is an error."""
        if key == -lib.SHMB_CLOSED or self._closed:
            return True
        if key == -lib.SHMB_FORKED:
            raise ForkedError(
                f"the host at {self.url} was inherited through fork: make another in the child"
            )
        if key not in (-lib.SHMB_TIMEOUT, -lib.SHMB_INTERRUPTED):
            raise_status(-key, "")
        if self.runners:
            self._idle_since = time.monotonic()
        return (
            self._until_idle is not None and time.monotonic() - self._idle_since >= self._until_idle
        )

    def _release_dead(self) -> None:
        """Gives back the slots whose last view has died."""
        for key in tuple(self._kept):
            if not self._kept[key]._held():
                del self._kept[key]
                _hot.release(self._address, key)

    # ---- Serve ----

    def serve(self, model: Model, *, max_batch: int = 1, max_wait: float = MAX_WAIT) -> None:
        """Answers every request with model(request): a value, or a dict of several by name; an exception becomes an
        error reply (ModelError on the other side). Until closed, Ctrl-C, or `until_idle`.

        model gets a mapping from names to arrays (strings, lists) and may keep them. With max_batch > 1 it gets a
        `Batch`, whose arrays have one more dim in front, and returns one row (or list element) for each request.
        """
        try:
            if max_batch > 1:
                for batch in self.batches(max_batch, max_wait):
                    _answer(batch, model)
            else:
                for request in self:
                    _answer(request, model)
        except KeyboardInterrupt:
            return


def _answer(question: Request | Batch, model: Model) -> None:
    try:
        advice = model(question)
        if isinstance(advice, Mapping):
            question.reply(**advice)
        else:
            question.reply(advice)
    except Exception as error:
        question._answer_error(error)

"""How a host receives: single requests, or batches of similar ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from shmbridge import _fastpath
from shmbridge._host.batch import Batch, answer_error, empty_batch, time_left
from shmbridge._host.request import (
    Receiver,
    Request,
    drop,
    is_open,
    lay_down,
    mismatch,
    pass_on,
    readable,
)
from shmbridge._host.service import logger
from shmbridge._host.serving import Rest
from shmbridge._native import ffi, lib
from shmbridge._values.dtypes import TensorSpec
from shmbridge.errors import ForkedError, MismatchError, ShmbridgeError, raise_status

SLICE_NS = 100_000_000  # a wait asks after signals at least this often
CACHED = 1024  # requests of known layout, dims and slot


@dataclass(frozen=True)
class Keys:
    """A host's requests by their keys, for environments, which have their own loops."""

    address: int
    channels: int
    direct: bool  # C alone sees requests and replies
    receive: Callable[[int], int]  # within ns: a key or -shmb_status
    take: Callable[[int], Request | None]
    came: Callable[[], None]  # a key did
    ends: Callable[[int], bool]
    check: Callable[[], None]  # ClosedError, ForkedError


class Receiving(Receiver):
    """The base of a host: its loops, and its requests."""

    _request_type: type[Request] = Request
    _interrupted = False  # Ctrl-C has ended a loop
    _refused_told = False
    _may_spare = False  # a runner may be attached that no compiler uses
    _url: str
    _features: dict[str, TensorSpec] | None
    _until_idle: float | None
    _idle_since: float
    _source: Any  # what _receive is called with, and a timeout in ns
    _receive: Callable[[Any, int], int]

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._kept = {}
        self._rest = Rest()
        self._left_over: list[Request] = []  # did not fit the last batch
        self._idle_since = time.monotonic()

    @property
    def runners(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def _looping(self) -> Iterator[None]:
        """A loop, which Ctrl-C ends for good. Behind its end runners that wait in vain say that no
        loop is running."""
        try:
            yield
        except KeyboardInterrupt:
            self._interrupted = True
            self.close()
            raise
        finally:
            lib.shmb_host_rest(self._h)

    def _tell_refused(self, error: ShmbridgeError) -> None:
        """Reports once that advice did not have the wanted dtype."""
        if not self._refused_told:
            self._refused_told = True
            logger.error("error, sent to the runner: %s", error)

    def _break_off(self, question: Request | Batch, error: BaseException) -> None:
        """The loop is left: by an exception of its body, which is the question's, or in order
        (GeneratorExit)."""
        if isinstance(error, Exception):
            with contextlib.suppress(ShmbridgeError):  # the host is closed, or the runner has gone
                answer_error(question, error)

    def _loop(self) -> Generator[Request, None, None]:
        receive, source, requests, kept = self._receive, self._source, self._requests, self._kept
        renewed, left_over, asked = _fastpath.renewed, self._left_over, False
        with self._looping():
            while not self._closed:
                if kept:
                    self._release_dead()
                request = self._next_left_over() if left_over else None
                if request is not None:
                    key = request._key
                else:
                    key = receive(source, SLICE_NS)
                    if key < 0:
                        if asked:
                            self._idle_since = time.monotonic()
                            asked = False
                        if self._ends(key):
                            return
                        continue
                    request = renewed(requests, key, 2)  # the cache and the caller's loop variable
                    if request is None:
                        request = self._cache(key)
                    if request is None:
                        continue
                asked = True
                try:
                    yield request
                except BaseException as error:
                    requests.pop(key, None)  # the request is whose who still holds it
                    self._break_off(request, error)
                    raise
                if request._open:
                    request = None
                    if (left := renewed(requests, key, 2)) is not None:
                        drop(left)
                        left = None
                    else:
                        # Someone else's now, until it is answered or collected.
                        requests.pop(key, None)
                request = None

    def _batches(self, max_size: int, max_wait: float | None) -> Generator[Batch, None, None]:
        held, asked = [empty_batch(max_wait)], False
        plain = self._receive is _fastpath.receive and not self._may_spare
        end_turn = _fastpath.end_turn
        collect: Callable[..., int | None] = _fastpath.collect if plain else self._collect
        address, requests, kept = self._address, self._requests, self._kept
        left_over = self._left_over
        with self._looping():
            while not self._closed:
                if kept:
                    self._release_dead()
                if left_over:
                    self._add_left_over(held[0], max_size)
                while (key := collect(held, address, requests, max_size)) is not None:
                    if key >= 0:
                        if (request := self._take(key)) is not None:
                            self._put(request, held[0], max_size)
                        continue
                    if asked:
                        self._idle_since = time.monotonic()
                        asked = False
                    if self._ends(key):
                        break
                if key is not None and not held[0].requests:
                    return
                request, asked = None, True
                try:
                    yield held[0]
                except BaseException as error:
                    self._break_off(held[0], error)
                    raise
                end_turn(held)

    def _collect(self, held: list[Batch], address: int, requests: Any, most: int) -> int | None:
        """As _fastpath.collect, from another source, or for runners that may be spare."""
        batch = held[0]
        have, now = len(batch.requests), time.monotonic_ns()
        if not have:
            return self._receive(self._source, SLICE_NS)
        left = time_left(batch, now)
        if have < most and lib.shmb_host_waiting(self._h) < self.runners:
            key = self._receive(self._source, min(left, SLICE_NS))
            if left or key != -lib.SHMB_TIMEOUT:
                return key
        return _fastpath.collect(held, address, requests, have)  # hands it out

    def _add_left_over(self, batch: Batch, most: int) -> None:
        for _ in range(len(self._left_over)):
            self._put(self._left_over.pop(0), batch, most)

    def _put(self, request: Request, batch: Batch, most: int) -> None:
        if len(batch.requests) >= most or not batch._add(request):
            self._left_over.append(request)

    def _take(self, key: int) -> Request | None:
        """The cached request of a key where only the cache holds it, else a new one in its
        place."""
        request = _fastpath.renewed(self._requests, key, 1)
        return self._cache(key) if request is None else request

    def _cache(self, key: int) -> Request | None:
        """A new request, kept for later ones of the same key. When there are too many, the older
        half makes room."""
        request = self._meet(key)
        if request is not None:
            if len(self._requests) >= CACHED:
                for old in list(self._requests)[: CACHED // 2]:
                    if not is_open(self._requests[old]):
                        del self._requests[old]
            self._requests[key] = request
        return request

    def _next_left_over(self) -> Request | None:
        while self._left_over:
            request = self._left_over.pop(0)
            if readable(request):
                return request
        return None

    def _meet(self, key: int) -> Request | None:
        """A new Request for a key; None when it is not what this host expects, which its runner is
        then told."""
        message = lib.shmb_host_message(self._h, key)
        if message == ffi.NULL:
            return None
        known = self._requests.get(key)
        try:
            request = self._request_type(self, key, message)
        except Exception as error:  # nothing that a runner sends may end the loop
            text = str(error).encode(errors="replace")
            lib.shmb_host_reply_error(self._h, key, False, lib.SHMB_UNSUPPORTED, text, len(text))
            return None
        if known is not None:
            lay_down(known)
        why = mismatch(request, self._features)
        if why:
            pass_on(request, MismatchError(why))
            return None
        return request

    def _ends(self, key: int) -> bool:
        """Nothing was received: is that the end of the loop? Raises where it is an error."""
        if key == -lib.SHMB_CLOSED or self._closed or self._rest.asked:
            return True
        if key == -lib.SHMB_FORKED:
            raise ForkedError(
                f"the host at {self._url} was inherited through fork: make another in the child"
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
        if not self._kept:
            return
        for key in tuple(self._kept):
            if not self._kept[key]._held():
                del self._kept[key]
                _fastpath.release(self._address, key)

    def answer_by(self, runner: Any, answered: Callable[[int], object]) -> None:
        """From now on the loop gets only what C's runner refuses, which answers the rest without
        Python, and says how many."""
        receive, count = self._receive, ffi.new("int64_t *")
        if receive is not _fastpath.receive:  # what comes otherwise is Python's
            return

        def serve(_source: Any, timeout_ns: int) -> int:
            key = int(lib.shmb_serve(self._h, runner, timeout_ns, count))
            if count[0]:
                self._idle_since = time.monotonic()
                answered(count[0])
            return key

        self._receive = serve

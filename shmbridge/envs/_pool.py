"""The compilers at a host, for whoever steps them: whose requests are whose."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, Protocol

from shmbridge._host.host import Host
from shmbridge._host.passing import channel_of
from shmbridge._host.request import Request
from shmbridge._native import ffi, lib
from shmbridge.errors import ClosedError, ShmbridgeError

GIVEN_UP = "the trainer has given this episode up: begin another"
NO_EPISODE = "this trainer has no such episode, or has given it up: begin another"


class CompilerSource(Protocol):
    """Compilers that belong to a trainer: it starts and ends them."""

    @property
    def channels(self) -> int: ...  # that one compilation takes
    def open(self, url: str, ahead: bool = False) -> None: ...
    def check(self, options: Mapping[str, Any] | None) -> None: ...
    def begin(
        self, env: int, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> str: ...
    def ahead(self, label: str) -> bool: ...
    def outcome(self, label: str, timeout: float) -> Any: ...
    def reward(self, label: str) -> float: ...
    def end(self, label: str) -> None: ...
    def close(self) -> None: ...


class Taker(Protocol):
    """Who has rows of episodes."""

    # Is the channel's runner still there? None: the channel is not the row's any more.
    def has(self, row: int, channel: int) -> bool | None: ...
    def look(self, row: int, key: int) -> None: ...  # at a request of the row's
    def lose(self, row: int, channel: int) -> None: ...  # its runner has gone
    def begin_with(self, key: int) -> bool: ...  # for a row that waits for any compiler
    def join(self, row: int, key: int) -> None: ...  # by a new runner of the row's own compiler


class CompilerPool:
    """The compilers that connect to a host, for the environments of one thread.

    Args:
        host: A Host, all of whose requests come here, or the URL to make one of. Any URL of a host will do whose SerDes, if it has one,
            keeps the names of advice.
        workers: Who starts and ends the compilers. An episode is then one compilation, chosen by the environment's seed. None: compilers
            come by themselves.
        options: The host's, where a URL is given.
    """

    def __init__(
        self, host: Host | str, *, workers: CompilerSource | None = None, **options: Any
    ) -> None:
        self.host = host if isinstance(host, Host) else Host(host, **options)
        if self.host._deadline is None:  # a trainer may take any time
            self.host._set_deadline(math.inf)
        self._workers = workers
        self._envs = 0  # how many environments have numbers, for the workers
        self._owners: dict[int, tuple[Taker, int]] = {}  # by channel: whose episode it is in
        self._labels: dict[str, tuple[Taker, int]] = {}  # the same of workers
        self._held: dict[int, int] = {}  # keys of requests that nobody has taken yet, by channel
        self._early: dict[int, str] = {}  # labels of workers that started ahead, by their keys
        # Are requests and replies C's alone? Pipes have rules of their own, and specs are checked in Python.
        self._direct = (
            self.host._request_type is Request
            and self.host._source is self.host._address
            and self.host._advice is None
            and self.host._features is None
        )
        if workers is not None:
            try:
                workers.open(self.host.url, ahead=True)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Closes the host, and ends the workers. Other compilers get ClosedError, and go on as their environments know how."""
        self._held.clear()
        try:
            self.host.close()
        finally:
            if self._workers is not None:
                self._workers.close()

    def __enter__(self) -> CompilerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, key: int) -> Request | None:
        """The request of a key, for a look; None where its runner has gone or is refused. Whoever does not reply lays it down."""
        return self.host._take(key)

    def _lay_down(self, request: Request) -> None:
        """The request is its key again: whoever made the object does not answer it at its end."""
        request._open = False

    def _refuse(self, key: int, why: str = GIVEN_UP) -> None:
        """Answers with an error."""
        request = self._read(key)
        if request is not None:
            with contextlib.suppress(ShmbridgeError):  # the host is closed: it knows
                request.fail(why)

    def _came(self, key: int, asking: Taker) -> None:
        """A request that C does not take by itself."""
        channel = channel_of(key)
        if channel in self._owners:
            taker, row = self._owners[channel]
            there = taker.has(row, channel)
            if there:
                taker.look(row, key)
                return
            if there is None:
                del self._owners[channel]
            else:
                taker.lose(row, channel)
        if self._workers is None and asking.begin_with(key):
            return
        request = self._read(key)
        if request is None:
            return
        if self._workers is not None:
            label = request.label
            self._lay_down(request)
            if label in self._labels:
                self._owners[channel] = taker, row = self._labels[label]
                taker.join(row, key)
            elif self._workers.ahead(label):
                self._early[key] = label
            else:
                self._refuse(key, NO_EPISODE)
        elif "step" in request:
            request.fail(NO_EPISODE)
        else:
            self._lay_down(request)
            self._held[channel] = key

    def _next_held(self) -> int | None:
        """A first request that waits for an environment."""
        for channel in self._held.keys() - self._owners.keys():
            key = self._held.pop(channel)
            if lib.shmb_host_message(self.host._h, key) != ffi.NULL:
                return key
        return None

    def _come_early(self, asking: Taker) -> None:
        """Those that started ahead, and whose episodes have begun since."""
        for key, label in list(self._early.items()):
            if label in self._labels:
                self._came(key, asking)
            if label in self._labels or not self._workers or not self._workers.ahead(label):
                del self._early[key]

    def _let_go(self, channel: int) -> None:
        """Its episode is over. What it goes on asking in that episode is refused."""
        self._owners.pop(channel, None)
        key = self._held.get(channel)
        if key is None:
            return
        request = self._read(key)
        if request is None or "step" in request:
            del self._held[channel]
            if request is not None:
                request.fail(GIVEN_UP)
        else:
            self._lay_down(request)

    def _check_open(self, status: int) -> None:
        """Nothing came: is the host closed?"""
        if self.host._ends(status):
            raise ClosedError(f"the host at {self.host.url} is closed")

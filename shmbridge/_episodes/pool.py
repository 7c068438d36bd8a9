"""The compilers at a host, and which episode each request belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from shmbridge import Host, Request
from shmbridge._host.layout import channel_of
from shmbridge._host.request import detach
from shmbridge.errors import Closing, InvalidError, ShmbridgeError, undone_by
from shmbridge.training import Workers

GIVEN_UP = "the trainer has abandoned this episode: begin another"
NO_EPISODE = "this trainer has no such episode, or has abandoned it: begin another"


class CompilerPool(Closing):
    """The compilers that connect to a host, for the environments of one thread.

    Args:
        host: A Host that is used only for this pool, or the URL to create one. Any URL works whose
            SerDes, if it has one, keeps the names of advice.
        workers: Starts and ends the compilers. An episode is then one compilation, selected by the
            environment's seed. None: compilers connect by themselves.
        options: The host's options, if a URL is given.
    """

    def __init__(self, host: Host | str, *, workers: Workers | None = None, **options: Any) -> None:
        self.host = host if isinstance(host, Host) else Host(host, **options)
        self._channels = Channels(self.host, workers)
        if workers is not None:
            with undone_by(self.close):
                workers.open(self.host.url, self._channels.loop.channels)

    def close(self) -> None:
        """Closes the host, and ends the workers. Other compilers get ClosedError."""
        self._channels.held.clear()
        try:
            self.host.close()
        finally:
            if self._channels.workers is not None:
                self._channels.workers.close()


class Channels:
    """A host's channels, each with its episode, and the requests that no episode has yet."""

    def __init__(self, host: Host, workers: Workers | None) -> None:
        self.host, self.workers = host, workers
        self.loop = host._environment_loop()
        # The request of a key; None: its runner is gone, or sent what the host does not expect.
        # One that is not answered at once must be detached.
        self.read = self.loop.take
        self.envs = 0  # how many environments have numbers, for the workers
        self._owners: dict[int, Any] = {}  # episodes by channel
        self._labels: dict[str, Any] = {}  # the same of workers
        self.held: dict[int, None] = {}  # keys of requests that no episode has yet, as they came

    def reserve(self, n: int) -> int:
        """Room for so many more environments: the first one's number."""
        each = 1 if self.workers is None else self.workers.channels
        need, found = (self.envs + n) * each, self.loop.channels
        if need > found:
            raise InvalidError(
                f"expected a host with channels={need} or more, found {found}: "
                f"an environment's compiler takes {each}"
            )
        self.envs += n
        return self.envs - n

    def reject(self, request: Request | None, why: str = GIVEN_UP) -> None:
        with contextlib.suppress(ShmbridgeError):  # the host is closed: it knows
            if request is not None:
                request.fail(why)

    def dispatch(self, key: int, begin_with: Callable[[int], bool]) -> None:
        """Gives a request that C did not take to its episode, or begins one with it."""
        channel = channel_of(key)
        owner = self._owners.get(channel)
        if owner is not None:
            there = owner.has(channel)
            if there:
                owner.look(key)
                return
            if there is None:
                del self._owners[channel]
            else:
                owner.lose(channel)
        if self.workers is not None:
            self._join(key, self.workers)
        elif not begin_with(key):
            self._hold_first(key)

    def expect(self, label: str, owner: Any) -> None:
        """The compiler that connects with this label belongs to this episode."""
        self._labels[label] = owner

    def forget(self, label: str) -> None:
        self._labels.pop(label, None)

    def give(self, key: int, owner: Any) -> None:
        """Assigns the channel of this request to an episode, and what it has asked since."""
        channel = channel_of(key)
        self._owners[channel] = owner
        for other in self._take_held(channel):
            owner.look(other)

    def hold(self, key: int) -> None:
        """Keeps a request until an episode begins with it."""
        self.held[key] = None

    def _take_held(self, channel: int) -> list[int]:
        keys = [key for key in self.held if channel_of(key) == channel]
        for key in keys:
            del self.held[key]
        return keys

    def _join(self, key: int, workers: Workers) -> None:
        request = self.read(key)
        if request is None:
            return
        label = request.label
        if label in self._labels:
            detach(request)
            self._owners[channel_of(key)] = owner = self._labels[label]
            if not owner.look(key):
                self.reject(self.read(key), NO_EPISODE)
        elif workers.ahead(label):
            detach(request)
            self.hold(key)
        else:
            self.reject(request, NO_EPISODE)

    def _hold_first(self, key: int) -> None:
        request = self.read(key)
        if request is None or "step" in request:
            self.reject(request, NO_EPISODE)
        else:
            detach(request)
            self.hold(key)

    def let_go(self, channel: int) -> None:
        """Its episode is over. What else it asks in that episode is rejected."""
        self._owners.pop(channel, None)
        for key in self._take_held(channel):
            self._hold_first(key)

"""A host whose model is another host: it forwards questions and advice."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from shmbridge import errors
from shmbridge._bridge import overview
from shmbridge._bridge.names import bridge_name
from shmbridge._host.host import Host
from shmbridge._host.layout import channel_of
from shmbridge._host.request import Request, fail_with_status
from shmbridge._native import lib
from shmbridge._runner.runner import TypedRunner, handle_of
from shmbridge._urls.options import split
from shmbridge.logs import LogWriter

SLICE = 0.25  # seconds between looks for runners that have left
RETRY = 1.0  # seconds without another try after the target could not be reached
START = 10.0  # seconds to wait for the target at the start, unless its URL says otherwise
CONNECT = 0.25  # seconds that one question may wait for a target that has gone
# Seconds that questions under way have to end, where their runner cannot be interrupted.
LEAVE = 2.0
FOR_GOOD = (errors.HostGoneError, errors.ClosedError, errors.CorruptError, errors.ForkedError)


class Relay(errors.Closing):
    """A host at `listen` (any host's URL) whose model is the host at `target` (any runner's URL):
    questions and advice go on as they are, errors with their status, and what was advised into
    `log`, if there is one.

    Each runner has a thread and a runner of the target of its own, so that none waits for another.
    A dead runner's question is given up at the target when the channel's next runner asks. When the
    target dies, the questions under way fail, and later ones find the next host of that name.
    options: as Host's.

    Errors: those of `connect` and `Host`: the target must be there within 10 s, or what its URL's
        connect_timeout says.
    """

    def __init__(
        self, target: str, listen: str, *, log: LogWriter | None = None, **options: Any
    ) -> None:
        self.target, self.log = target, log
        first = TypedRunner(target, connect_timeout=START)
        room = {"deadline": lib.shmb_runner_deadline(handle_of(first)), **_room(target), **options}
        for name in _fixed(listen):
            room.pop(name, None)
        with errors.undone_by(first.close):
            # who spins keeps the GIL from the others
            self.host = Host(listen, wait="block", **room)
        self._channels = {0: _Channel(self, first)}

    def serve(self) -> None:
        """Until the host is closed; KeyboardInterrupt goes through."""
        with suppress(errors.ClosedError):
            while True:
                request = self.host.receive(SLICE)
                if request is None:
                    self._drop_unused()
                    continue
                channel = channel_of(request._key)
                if channel not in self._channels:
                    self._channels[channel] = _Channel(self)
                self._channels[channel].ask(request)
                del request  # or it would be held until the next

    @property
    def asked(self) -> int:
        return sum(channel.asked for channel in self._channels.values())

    @property
    def errors(self) -> int:
        return sum(channel.errors for channel in self._channels.values())

    def _drop_unused(self) -> None:
        """Closes the target's runners while no runner is connected here."""
        if not self.host.runners:
            for channel in self._channels.values():
                channel.ask(None)

    def close(self) -> None:
        """Gives up what is under way, and ends the host."""
        for channel in self._channels.values():
            channel.end()
        until = time.monotonic() + LEAVE
        for channel in self._channels.values():
            channel.join(max(0, until - time.monotonic()))
        self.host.close()


class _Channel(threading.Thread):
    def __init__(self, relay: Relay, runner: TypedRunner | None = None) -> None:
        super().__init__(daemon=True)
        self._relay = relay
        self._runner = runner
        self._lock = threading.Lock()  # held to close the runner, or to interrupt it
        self._asking: int | None = None  # the number of the runner whose question is under way
        self._ending = False
        self.asked = self.errors = 0
        self._questions: SimpleQueue[Request | None] = SimpleQueue()
        self._not_before = 0.0  # time.monotonic() of the next try to reach the target
        self._why = (0, "")  # and why the last one failed: status and text
        self.start()

    def ask(self, request: Request | None) -> None:
        """Queues a question; None: no runner is left. If another runner asks, the one before has
        gone, so its question is interrupted. One runner may have several in flight."""
        asker = request.runner if request else 0
        self._questions.put(request)
        with self._lock:
            if self._runner and self._asking not in (None, asker):
                self._runner.interrupt()

    def end(self) -> None:
        """Answers what is under way with ClosedError."""
        self._ending = True
        self.ask(None)

    def run(self) -> None:
        while not self._ending:
            request = self._questions.get()
            if request is None:
                self._drop()
            else:
                self._answer(request)
            del request
        self._drop()

    def _answer(self, request: Request) -> None:
        self.asked += 1
        try:
            want = request.wanted
            log = self._relay.log
            label = request.label if log else ""
            features = dict(request) if log else request  # for the log, beyond the reply
            advice = self._evaluate(features, want, request.runner)
            if request.reply(**advice) and log:
                log.record(features, advice, want=want, label=label)
        # Also of a reply that does not fit: the runner has been told that.
        except Exception as caught:
            error = errors.ClosedError("the relay was closed") if self._ending else caught
            self.errors += 1
            fail_with_status(request, error)

    def _evaluate(self, features: Mapping[str, Any], want: Any, asker: int) -> dict[str, Any]:
        while True:
            runner = self._connected()
            try:
                with self._lock:
                    self._asking = asker
                if self._ending:  # said before it interrupts, so one of the two is seen
                    raise errors.ClosedError
                runner.evaluate(features, dtype=want)
                return runner.advice
            except errors.InterruptedCallError:
                if self._ending or not self._questions.empty():
                    raise
            except FOR_GOOD:  # another host may be there by the next question
                self._drop()
                raise
            finally:
                with self._lock:
                    self._asking = None

    def _connected(self) -> TypedRunner:
        if self._runner is None:
            # No compiler should wait at each of its questions.
            if time.monotonic() < self._not_before:
                errors.raise_status(*self._why)
            try:
                self._runner = TypedRunner(self._relay.target, connect_timeout=CONNECT)
            except errors.ShmbridgeError as error:
                self._not_before, self._why = time.monotonic() + RETRY, (error.status, str(error))
                raise
        return self._runner

    def _drop(self) -> None:
        with self._lock:
            if self._runner:
                self._runner.close()
            self._runner = None


def _fixed(listen: str) -> list[str]:
    """The options that such a host does not take: it has as many channels as it names compilers,
    and pipes carry no deadline."""
    where, options = split(listen)
    if where.partition("://")[0] in ("pipe", "llvm"):
        return ["channels", "deadline"]
    return ["channels"] if options.get("role") == "client" else []


def _room(target: str) -> dict[str, int]:
    """What the target has, where that can be known; a pair of pipes serves one compiler at a
    time."""
    scheme = target.rpartition("://")[0]
    if scheme == "pipe":
        return {"channels": 1}
    for bridge in overview.bridges(bridge_name(target)) if scheme in ("", "shm") else []:
        return {
            "channels": len(bridge.channels),
            "request_bytes": bridge.request_bytes,
            "advice_bytes": bridge.advice_bytes,
        }
    return {}

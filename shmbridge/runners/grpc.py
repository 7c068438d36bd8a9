"""Models on other machines: "grpc://HOST:PORT" asks the host that serves there. With role=server
this compiler serves, and a trainer calls it (`Host("grpc://…?role=client")`). docs/remote.md has
the other options."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from shmbridge import errors
from shmbridge._grpc import wire
from shmbridge._grpc.options import Options, is_address, options_of
from shmbridge._grpc.wire import Method
from shmbridge.runners._base import RunnerKind, late
from shmbridge.runners._register import open_runners

# Seconds for a connection, and for a free channel, where the caller does not want to wait.
ATTEMPT = 1.0
BUSY = 0.25  # seconds that a host takes to say that all channels are taken, or less
LOOK = 0.1  # seconds between looks whether a user's trainer is there
Take = Callable[[Any, float | None], Any]  # RunnerKind.take
GONE = "the trainer is gone: open another runner for the next trainer"


@atexit.register
def _close_all() -> None:
    """While gRPC's threads still run: later its close would wait for them for ever."""
    for runner in list(open_runners.values()):
        if isinstance(runner, Grpc):
            runner.close()


class Grpc(RunnerKind):
    """UNAVAILABLE is a permanent HostGoneError: open another runner, or set retries in the URL."""

    def __init__(self, where: str, **options: str) -> None:
        chosen, self._process = options_of(options, "client"), os.getpid()
        if not is_address(where) or "," in where:
            raise errors.InvalidError(
                f"grpc://{where}: expected grpc://HOST:PORT or grpc://unix:/PATH"
            )
        kind = _Served if chosen.role == "server" else _User if chosen.service else _Stream
        self._link: Any = kind(where, chosen, self.connect_timeout, self.take)
        self.deadline = self._link.deadline

    def evaluate(
        self, features: Mapping[str, Any], want: np.dtype[Any] | None, deadline: float | None
    ) -> Any:
        link = self._link
        reply = link.ask(link.method.codec.encode_request(features, want), deadline)
        return link.method.codec.decode_advice(reply, want)

    def close(self) -> None:
        link, self._link = self._link, None
        if link and os.getpid() == self._process:  # a forked child has none of gRPC's threads
            link.close()


class _Stream:
    """A stream of our own service, reopened after an abandoned question."""

    def __init__(self, address: str, options: Options, seconds: float, take: Take) -> None:
        self._address, self.method, self._take = address, Method("getAdvice", options), take
        self._channel = wire.channel(address, options)
        self._call: Any = None
        with errors.undone_by(self.close):
            self._open(seconds)

    def _open(self, seconds: float) -> None:
        """A stream whose other end is there. Waits so long also where all channels are taken."""
        end = time.monotonic() + (seconds if seconds > 0 else ATTEMPT)
        while True:
            try:
                return self._try(end - time.monotonic(), seconds > 0)
            except (errors.BusyError, errors.DeadlineError):
                left = end - time.monotonic()
                if left < BUSY:
                    time.sleep(max(0, left))
                    raise

    def _try(self, seconds: float, wait: bool) -> None:
        self._questions: SimpleQueue[bytes | None] = SimpleQueue()
        self._replies: SimpleQueue[Any] = SimpleQueue()
        ask = self._channel.stream_stream(self.method.path)
        call = self._call = ask(iter(self._questions.get, None), wait_for_ready=wait)
        threading.Thread(target=_read, args=(call, self._replies), daemon=True).start()
        try:
            first = self._take(self._replies, max(0, seconds))
        except BaseException as error:
            self._drop()
            raise (
                wire.why_not(self._channel, self._address, seconds)
                if isinstance(error, Empty)
                else error
            ) from None
        if first != wire.READY:
            self._drop()
            why = wire.error_of(first, self._address)
            raise errors.NoHostError(str(why)) if isinstance(why, errors.HostGoneError) else why
        self.deadline = wire.deadline_in(call.initial_metadata())

    def ask(self, data: bytes, deadline: float | None) -> bytes:
        if self._call is None:
            self._open(ATTEMPT if deadline is None else deadline)
        self._questions.put(data)
        try:
            reply = self._take(self._replies, deadline)
        except BaseException as error:  # Empty, an interrupt, Ctrl-C
            self._drop()
            raise (late(deadline) if isinstance(error, Empty) else error) from None
        if isinstance(reply, bytes):
            return reply
        self._drop()
        raise (
            errors.ClosedError("the host has closed this runner's stream")
            if reply is None
            else wire.error_of(reply, self._address, len(data))
        )

    def _drop(self) -> None:
        """Gives the stream up, which the host sees."""
        call, self._call = self._call, None
        if call is not None:
            self._questions.put(None)
            call.cancel()

    def close(self) -> None:
        self._drop()
        self._channel.close()


def _read(call: Any, replies: SimpleQueue[Any]) -> None:
    """READY, replies, and how it ended: an RpcError or None."""
    try:
        if wire.READY in map(tuple, call.initial_metadata()):
            replies.put(wire.READY)
        for reply in call:
            replies.put(reply)
        replies.put(None)
    except wire.RpcError as error:
        replies.put(error)


class _User:
    """Calls of the user's own method."""

    deadline = None

    def __init__(self, address: str, options: Options, seconds: float, take: Take) -> None:
        self._address, self.method, self._take = address, Method("getAdvice", options), take
        self._channel = wire.channel(address, options)
        self._call = self._channel.unary_unary(self.method.path)
        with errors.undone_by(self.close):
            wire.wait_ready(self._channel, address, seconds if seconds > 0 else ATTEMPT)

    def ask(self, data: bytes, deadline: float | None) -> bytes:
        call, done = self._call.future(data, timeout=deadline), SimpleQueue[Any]()
        call.add_done_callback(done.put)
        try:
            self._take(done, None)  # gRPC sees to the deadline
            reply: bytes = call.result()
            return reply
        except wire.RpcError as error:
            raise wire.error_of(error, self._address, len(data)) from None
        finally:
            call.cancel()

    def close(self) -> None:
        self._channel.close()


class _Question:
    """What a trainer should answer, in bytes or with an error."""

    def __init__(self, data: bytes) -> None:
        self.data, self.given_up = data, False
        self.reply: SimpleQueue[bytes | errors.ShmbridgeError] = SimpleQueue()


class _Served:
    """A server of this compiler's own, which one trainer at a time calls: with the last advice, for
    the next question."""

    deadline = math.inf  # a trainer may take any time

    def __init__(self, address: str, options: Options, seconds: float, take: Take) -> None:
        self.method, self._take = Method("getObservation", options), take
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        self._asked: _Question | None = None  # the last one
        self._owed: _Question | None = None  # a user's trainer has taken it
        # Held by our trainer's stream, for good: after it this runner is another's.
        self._taking = threading.Lock()
        self._came, self._gone = threading.Event(), False
        behavior = self._user_call if self.method.user else self._stream
        self._server = wire.Server(address, options, self.method, behavior)
        seconds = seconds if seconds > 0 else ATTEMPT
        with errors.undone_by(self.close):
            if not self._came.wait(seconds):
                raise errors.NoHostError(
                    f"no trainer has called grpc://{self._server.address} within {seconds:.3g} s"
                )

    def ask(self, data: bytes, deadline: float | None) -> bytes:
        question = self._asked = _Question(data)
        if self._gone:  # said before _left looks for a question, so one of the two is seen
            raise errors.HostGoneError(GONE)
        self._questions.put(question)
        try:
            reply = self._take(question.reply, deadline)
        except BaseException as error:  # Empty, an interrupt, Ctrl-C
            question.given_up = True
            raise (late(deadline) if isinstance(error, Empty) else error) from None
        if isinstance(reply, errors.ShmbridgeError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def _stream(self, requests: Any, context: Any) -> Any:
        if not self._taking.acquire(blocking=False):
            wire.abort(context, errors.BusyError("this compiler already has a trainer"))
        context.send_initial_metadata((wire.READY,))
        if not context.add_callback(self._left):
            self._left()
        self._came.set()
        while (question := self._questions.get()) is not None:
            if not question.given_up:
                yield question.data
                question.reply.put(next(requests))  # the trainer's end ends this too

    def _left(self) -> None:
        self._gone = True
        if self._asked:
            self._asked.reply.put(errors.HostGoneError(GONE))
        self._questions.put(None)

    def _user_call(self, data: bytes, context: Any) -> bytes:
        context.send_initial_metadata((wire.READY,))  # who is told of errors
        metadata = dict(context.invocation_metadata())
        status, owed = wire.status_in(metadata), self._owed
        self._owed = None
        if owed:
            why = metadata.get(wire.TEXT, b"").decode(errors="replace") or GONE
            owed.reply.put(errors.BY_STATUS[status](why) if status else data)
        self._came.set()
        while context.is_active():
            try:
                question = self._questions.get(timeout=LOOK)
            except Empty:
                continue
            if question and not question.given_up:
                self._owed = question
                return question.data
        return b""

    def close(self) -> None:
        self._questions.put(None)
        self._server.stop()


PLUGIN = Grpc

"""Compilers on other machines: "grpc://HOST:PORT" serves them at one port.
"grpc://H1:P1,H2:P2?role=client" calls compilers that serve, which is how ML-Compiler-Bridge trains.
docs/remote.md has the other options."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import random
import secrets
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

from shmbridge import errors
from shmbridge._bridge import open_hosts
from shmbridge._grpc import wire
from shmbridge._grpc.options import Options, is_address, options_of
from shmbridge._grpc.wire import Method
from shmbridge._host.host import Host
from shmbridge._host.service import logger
from shmbridge._native import lib
from shmbridge._runner.runner import TypedRunner
from shmbridge._urls.options import Wait, split

CLAIM = 0.1  # seconds that one try of a runner waits for a channel; it tries again
QUEUE = 1.0  # seconds that a call of a user's method waits where all channels are taken
ARRIVE = 0.5  # seconds that the last answer has to arrive before its call ends
PAUSE = 0.1  # seconds before a worker that has gone is called again, or more

# Before gRPC's own: its threads take the last answers to the compilers.
atexit.register(open_hosts.close_all)


class _Proxy(TypedRunner):
    """Asks at the private bridge for a far compiler, which has its own time to connect. Any thread
    may give up its questions."""

    _gives_a_moment = False

    def __init__(self, url: str, seconds: float) -> None:
        super().__init__(url, connect_timeout=seconds, deadline=math.inf, wait="block")
        self._lock = threading.Lock()
        self._asker: Any = None
        self._given_up = False
        self._encoding_failed = False  # an advice, which the log has
        self.busy = False

    def answer(self, method: Method, data: bytes, asker: Any) -> bytes:
        """The reply to a question in bytes. asker: who may give it up. Errors: ShmbridgeError."""
        with self._lock:
            self._asker, self._given_up = asker, False
        try:
            features, want = method.codec.decode_request(data)
            while True:
                try:
                    self.evaluate(features, dtype=want)
                    return self._encoded(method)
                except errors.InterruptedCallError:  # perhaps of an earlier asker's, too late
                    if self._given_up:
                        raise
        finally:
            with self._lock:
                self._asker = None

    def _encoded(self, method: Method) -> bytes:
        """The advice in bytes. A compiler may overlook an error, so the log gets the first one."""
        try:
            return method.codec.encode_advice(self.advice)
        except errors.ShmbridgeError as error:
            if not self._encoding_failed:
                logger.error("the advice does not fit the message: %s", error)
            self._encoding_failed = True
            raise

    def reply(self, method: Method, data: bytes, asker: Any) -> bytes:
        """As answer, but what goes wrong is a reply too."""
        try:
            return self.answer(method, data, asker)
        except errors.ShmbridgeError as error:
            return method.codec.encode_failure(error.status, str(error))

    def give_up(self, asker: Any) -> None:
        with self._lock:
            if self._asker is asker:
                self._given_up = True
                self.interrupt()


class GrpcHost(Host):
    """A host whose compilers connect through gRPC: a private bridge with a runner for each of them.

    If a runner abandons its question or dies, its channel becomes free, and the model's answer is
    discarded.

    Args:
        url: "grpc://HOST:PORT". Port 0 selects a free one; see the attribute `url`.
        channels: How many runners can connect at once. With role=client, the number of addresses.
        wait: As in `Host`, for the private bridge.
        options: As in `Host`.

    Raises:
        InUseError: Another server has the address.
        InvalidError: An option is invalid.
        UnsupportedError: The package grpcio is not installed.
    """

    _has_idle_runners = _private = True

    def __init__(
        self, url: str, *, channels: int | None = None, wait: Wait = "block", **options: Any
    ) -> None:
        self._sides = list[Any]()
        where, given = split(url.partition("://")[2])
        chosen = options_of(given, "server")
        calls = chosen.role == "client"
        targets = [part for part in where.split(",") if part]
        if wait == "spin":
            raise errors.InvalidError(
                f"{url}: expected wait='block' or 'adaptive': threads of this process answer, "
                "which spinning would stop"
            )
        if not targets or not all(map(is_address, targets)) or (len(targets) > 1 and not calls):
            raise errors.InvalidError(
                f"{url}: expected grpc://HOST:PORT or grpc://unix:/PATH, or several such with "
                "commas between and role=client"
            )
        if calls and channels not in (None, len(targets)):
            raise errors.InvalidError(
                f"{url}: each address has one channel: leave channels={channels} out"
            )
        if calls or channels is not None:
            options["channels"] = len(targets) if calls else channels
        super().__init__(f"grpc-{os.getpid()}-{secrets.token_hex(4)}", wait="block", **options)
        self._url = url
        with errors.undone_by(self.close):
            if calls:
                self._sides = [_ClientSide(self, target, chosen) for target in targets]
            else:
                served = _ServerSide(self, where, chosen)
                self._sides = [served]
                self._url = f"grpc://{served.server.address}"

    @property
    def runners(self) -> int:
        """How many compilers are attached; with the user's own service, how many of its calls are
        running."""
        return super().runners - int(sum(side.idle for side in self._sides))

    def close(self) -> None:
        """Ends open questions with ClosedError, then the connections. You may call it twice. In a
        forked child it does nothing."""
        if self._closed:
            return
        super().close()
        if not lib.shmb_host_forked(self._h):
            for side in self._sides:
                side.stop()
            for side in self._sides:
                side.join()


class _ServerSide:
    """The server, whose threads each have a compiler."""

    def __init__(self, host: GrpcHost, address: str, options: Options) -> None:
        self._host, self._bridge = host, f"shm://{host.name}"
        self._method = Method("getAdvice", options)
        self._streams: dict[Any, _Proxy] = {}
        # Of a user's method, whose calls know nothing of one another.
        self._idle: SimpleQueue[_Proxy] = SimpleQueue()
        behavior = self._call if self._method.user else self._stream
        self.server = wire.Server(address, options, self._method, behavior)

    def _stream(self, requests: Any, context: Any) -> Any:
        try:
            proxy = self._streams[context] = _Proxy(self._bridge, CLAIM)
        except errors.ShmbridgeError as error:
            wire.abort(context, type(error)(str(error).replace(self._host.name, self._host.url)))
        try:
            context.send_initial_metadata(wire.ready(self._host._deadline))
            if not context.add_callback(lambda: proxy.give_up(context)):
                return
            for data in requests:
                proxy.busy = True
                yield proxy.reply(self._method, data, context)
                proxy.busy = False
                if self._host._closed:
                    return
        finally:
            del self._streams[context]
            proxy.close()

    def _call(self, data: bytes, context: Any) -> bytes:
        try:
            proxy = self._borrow()
            try:
                context.add_callback(lambda: proxy.give_up(context))
                return proxy.answer(self._method, data, context)
            finally:
                self._idle.put(proxy)
        except errors.ShmbridgeError as error:
            wire.abort(context, error)

    @property
    def idle(self) -> int:
        """How many runners of the bridge belong to no call now."""
        return self._idle.qsize()

    def _borrow(self) -> _Proxy:
        with contextlib.suppress(Empty):
            return self._idle.get_nowait()
        try:
            return _Proxy(self._bridge, CLAIM)
        except errors.BusyError:
            with contextlib.suppress(Empty):
                return self._idle.get(timeout=QUEUE)
            raise

    def stop(self) -> None:
        for context, proxy in list(self._streams.items()):
            if not proxy.busy:  # others end behind their last answer
                context.cancel()

    def join(self) -> None:
        self.server.stop()
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().close()


class _ClientSide(threading.Thread):
    """Calls one worker, again and again, and answers what it asks."""

    idle = 0

    def __init__(self, host: GrpcHost, address: str, options: Options) -> None:
        super().__init__(daemon=True)
        self._host, self._bridge, self._address = host, f"shm://{host.name}", address
        self._method = Method("getObservation", options)
        self._channel = wire.channel(address, options)
        self._proxy: _Proxy | None = None
        self._now: Any = None  # the call
        self._ended, self._left = threading.Event(), threading.Event()
        self._answered = -math.inf  # time.monotonic() of the last answer; inf while one is made
        self.start()

    def run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(wire.RpcError, wire.Cancelled, errors.ShmbridgeError):
                self._user_calls() if self._method.user else self._stream()
            if self._proxy:
                self._proxy.close()
                self._proxy = None
            self._answered = -math.inf
            self._ended.wait(PAUSE * random.uniform(1, 2))

    def _enter(self) -> _Proxy:
        """The worker is there: it has a channel from now on. Waits until the host looks."""
        while not self._ended.is_set():
            with contextlib.suppress(ConnectionError, TimeoutError):
                self._proxy = _Proxy(self._bridge, CLAIM)
                return self._proxy
        raise errors.RunnerGoneError

    def _begin(self, call: Any) -> Any:
        """A call that join() ends."""
        self._now = call
        if self._left.is_set():
            call.cancel()
        return call

    def _stream(self) -> None:
        replies: SimpleQueue[bytes | None] = SimpleQueue()
        ask = self._channel.stream_stream(self._method.path)
        call = self._begin(ask(iter(replies.get, None), wait_for_ready=True))
        try:
            if wire.READY not in list(map(tuple, call.initial_metadata())):
                next(call)  # raises why
            proxy = self._enter()
            call.add_callback(lambda: proxy.give_up(call))
            for data in call:
                self._answered = math.inf
                replies.put(proxy.reply(self._method, data, call))
                self._answered = time.monotonic()
        finally:
            replies.put(None)
            call.cancel()

    def _user_calls(self) -> None:
        """The first has no advice, and says that what an earlier trainer owed will not come. Where
        there is none later, only a runner of ours is told: any other compiler would take the empty
        message for an advice of zeros."""
        ask = self._channel.unary_unary(self._method.path)
        advice, metadata = b"", [(wire.STATUS, str(lib.SHMB_HOST_GONE))]
        while self._answered > -math.inf or not self._ended.is_set():
            call = self._begin(ask.future(advice, metadata=metadata, wait_for_ready=True))
            data, ours = call.result(), wire.READY in map(tuple, call.initial_metadata())
            proxy = self._proxy or self._enter()
            self._answered = math.inf
            try:
                advice, metadata = proxy.answer(self._method, data, self), []
            except errors.ShmbridgeError as error:
                if not ours:
                    return self._give_up(error)
                text: Any = errors.shortened(str(error)).encode(errors="replace")
                advice, metadata = b"", [(wire.STATUS, str(error.status)), (wire.TEXT, text)]
            self._answered = time.monotonic()

    def _give_up(self, error: errors.ShmbridgeError) -> None:
        self._ended.set()
        if not self._host._closed:
            text = (
                f"shmbridge: grpc://{self._address}: {error}: this compiler cannot receive "
                "errors, so it is not called again: let the model answer every request"
            )
            print(errors.printable(text), file=sys.stderr)

    def stop(self) -> None:
        self._ended.set()

    def join(self, timeout: float | None = 2) -> None:
        super().join(max(0, min(ARRIVE, self._answered + ARRIVE - time.monotonic())))
        self._left.set()
        if self._now:
            self._now.cancel()
        super().join(timeout)
        self._channel.close()


PLUGIN = GrpcHost

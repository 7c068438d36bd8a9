"""Peers over pipes and sockets: the standard library's, and pyzmq."""

import selectors
import socket
from collections.abc import Callable
from typing import Any

from bench.transport.peers_base import ANSWER, Ask, Peer, answer


def serve_each(ends: list[Any], turn: Callable[[Any], None]) -> None:
    """Yields each readable end: epoll, or a plain wait if there is only one."""
    if len(ends) == 1:
        while True:
            turn(ends[0])
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                turn(key.fileobj)


class Pipe(Peer):
    """docs.python.org/3/library/multiprocessing.html: send_bytes and recv_bytes_into, without
    pickle."""

    name = "multiprocessing.Pipe"

    def make(self) -> None:
        from multiprocessing import Pipe as pipe

        self.ends = [pipe() for _ in range(self.clients)]

    def serve(self, ready: Callable[[], None]) -> None:
        buffer = bytearray(self.size)

        def turn(end: Any) -> None:
            end.recv_bytes_into(buffer)
            end.send_bytes(answer(buffer))

        ready()
        serve_each([ends[1] for ends in self.ends], turn)

    def connect(self, client: int) -> Ask:
        end = self.ends[client][0]

        def ask(array: Any) -> int:
            end.send_bytes(array)
            return ANSWER.unpack(end.recv_bytes())[0]

        return ask


class UnixSocket(Peer):
    """unix(7): SOCK_SEQPACKET keeps messages whole; with room for one in the buffers."""

    name = "Unix socket"

    def make(self) -> None:
        self.ends = [
            socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(self.clients)
        ]
        for pair in self.ends:
            pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * self.size + 65536)

    def serve(self, ready: Callable[[], None]) -> None:
        buffer = bytearray(self.size)

        def turn(end: Any) -> None:
            end.recv_into(buffer)
            end.send(answer(buffer))

        ready()
        serve_each([ends[1] for ends in self.ends], turn)

    def connect(self, client: int) -> Ask:
        end = self.ends[client][0]

        def ask(array: Any) -> int:
            end.send(array)
            return ANSWER.unpack(end.recv(ANSWER.size))[0]

        return ask


class Zmq(Peer):
    """REQ and REP over ipc. pyzmq.readthedocs.io/en/latest/api/zmq.html: copy=False; it copies
    below copy_threshold by itself."""

    name = "pyzmq"
    needs = ("zmq",)

    @property
    def _url(self) -> str:
        return f"ipc://{self.folder}/zmq"

    def serve(self, ready: Callable[[], None]) -> None:
        import zmq

        end = zmq.Context().socket(zmq.REP)
        end.bind(self._url)
        ready()
        while True:
            end.send(answer(end.recv(copy=False).buffer))

    def connect(self, client: int) -> Ask:
        import zmq

        end = zmq.Context().socket(zmq.REQ)
        end.connect(self._url)

        def ask(array: Any) -> int:
            end.send(array, copy=False)
            return ANSWER.unpack(end.recv())[0]

        return ask


PEERS = (Zmq,)

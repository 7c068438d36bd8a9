"""Peers over pipes and sockets: the standard library's, pyzmq, pynng, eclipse-zenoh."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any

from peers_base import ANSWER, Ask, Peer, answer


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


class Nng(Peer):
    """Req0 and Rep0 over ipc: pynng.readthedocs.io/en/latest/core.html."""

    name = "pynng"
    needs = ("pynng",)

    @property
    def _url(self) -> str:
        return f"ipc://{self.folder}/nng"

    def serve(self, ready: Callable[[], None]) -> None:
        import pynng

        with pynng.Rep0(listen=self._url) as end:
            ready()
            while True:
                end.send(answer(end.recv()))

    def connect(self, client: int) -> Ask:
        import pynng

        end = pynng.Req0(dial=self._url)

        def ask(array: Any) -> int:
            end.send(array.tobytes())
            return ANSWER.unpack(end.recv())[0]

        return ask


class Zenoh(Peer):
    """Over a Unix socket, without discovery. DEFAULT_CONFIG.json5: lowlatency, which goes without
    qos and cannot fragment what exceeds 64 KB; shared memory for what is large. A querier asks a
    queryable, in express mode."""

    name = "eclipse-zenoh"
    needs = ("zenoh",)

    def _session(self, role: str) -> Any:
        import zenoh

        config = zenoh.Config()
        for key, value in {
            "mode": '"peer"' if role == "listen" else '"client"',
            f"{role}/endpoints": f'["unixsock-stream/{self.folder}/zenoh"]',
            **({"listen/endpoints": "[]"} if role == "connect" else {}),
            "scouting/multicast/enabled": "false",
            **(
                {"transport/unicast/lowlatency": "true", "transport/unicast/qos/enabled": "false"}
                if self.size < 60_000
                else {}
            ),
            "transport/shared_memory/enabled": "true",
        }.items():
            config.insert_json5(key, value)
        return zenoh, zenoh.open(config)

    def serve(self, ready: Callable[[], None]) -> None:
        _, session = self._session("listen")

        def reply(query: Any) -> None:
            query.reply(self.id, answer(query.payload.to_bytes()), express=True)

        session.declare_queryable(self.id, reply, complete=True)
        ready()
        threading.Event().wait()

    def connect(self, client: int) -> Ask:
        zenoh, self.session = self._session("connect")  # closes when it is collected
        querier = self.session.declare_querier(
            self.id,
            target=zenoh.QueryTarget.BEST_MATCHING,
            consolidation=zenoh.ConsolidationMode.NONE,
            express=True,
        )

        def ask(array: Any) -> int:
            for reply in querier.get(payload=array.tobytes()):
                return ANSWER.unpack(reply.ok.payload.to_bytes())[0]
            raise RuntimeError("zenoh gave no reply")

        return ask


PEERS = (Zmq, Nng, Zenoh)

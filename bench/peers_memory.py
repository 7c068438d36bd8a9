"""Peers in shared memory: shmbridge, iceoryx2, the standard library's blocks with semaphores,
faster-fifo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from peers_base import ANSWER, Ask, Peer, answer, model

ASKER = ["peers_ask", "peers_shmbridge"]  # the program of ShmbridgeC and the pipes


class Shmbridge(Peer):
    name = "shmbridge"

    def serve(self, ready: Callable[[], None]) -> None:
        import shmbridge

        room = self.size + 4096
        with shmbridge.Host(self.id, channels=self.clients, request_bytes=room) as host:
            ready()
            for request in host:
                request.reply(model(request["x"]))

    def connect(self, client: int) -> Ask:
        import shmbridge

        runner = shmbridge.connect(f"shm://{self.id}")
        return lambda array: runner.evaluate({"x": array})


class ShmbridgeC(Shmbridge):
    name = "shmbridge, C asks"
    asker = "C"

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_ask"), f"shm://{self.id}"]


class ShmbridgeBothC(Shmbridge):
    name = "shmbridge, C on both sides"
    asker = "C"

    def server(self) -> list[str]:
        room = str(self.size + 4096)
        return [str(self.build / "host"), "adaptive", "-1", room, str(self.clients)]

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_ask"), f"shm://{self.said}"]


class Iceoryx2(Peer):
    """In Rust. Both sides poll, as its own benchmarks do: iceoryx2, benchmarks/request-response."""

    name = "iceoryx2, polling, Rust on both sides"
    asker = "Rust"
    needs = ("peers_iceoryx2",)
    waits = "poll"

    def server(self) -> list[str]:
        program = str(self.build / "peers_iceoryx2")
        return [program, "serve", self.id, self.waits, str(self.clients)]

    def program(self, client: int) -> list[str]:
        program = str(self.build / "peers_iceoryx2")
        return [program, "ask", self.id, self.waits, str(client)]


class Iceoryx2Events(Iceoryx2):
    name = "iceoryx2, events, Rust on both sides"
    waits = "events"


class SharedMemory(Peer):
    """docs.python.org/3/library/multiprocessing.shared_memory.html: a block for each client, and
    semaphores to wait on."""

    name = "shared_memory, semaphores"

    def make(self) -> None:
        from multiprocessing import get_context, shared_memory

        fork = get_context("fork")
        room = self.size + 16
        self.blocks = [
            shared_memory.SharedMemory(create=True, size=room) for _ in range(self.clients)
        ]
        self.asked, self.told = fork.Semaphore(0), [fork.Semaphore(0) for _ in self.blocks]
        for block in self.blocks:
            block.unlink()

    def serve(self, ready: Callable[[], None]) -> None:
        ready()
        while True:
            self.asked.acquire()
            for block, told in zip(self.blocks, self.told, strict=True):
                buffer = block.buf
                if buffer[0]:
                    buffer[0] = 0
                    buffer[8:16] = answer(buffer[16 : 16 + self.size])
                    told.release()

    def connect(self, client: int) -> Ask:
        buffer, told = self.blocks[client].buf, self.told[client]
        room = np.frombuffer(buffer, np.float32, self.size // 4, 16)

        def ask(array: Any) -> int:
            room[:] = array
            buffer[0] = 1
            self.asked.release()
            told.acquire()
            return ANSWER.unpack_from(buffer, 8)[0]

        return ask


class FasterFifo(Peer):
    """pypi.org/project/faster-fifo: custom serializers instead of pickle, get_many for many to
    one."""

    name = "faster-fifo"
    needs = ("faster_fifo",)

    def make(self) -> None:
        import faster_fifo

        plain = {"loads": bytes, "dumps": bytes}
        room = (self.size + 64) * (self.clients + 1) * 2
        self.asked = faster_fifo.Queue(room, **plain)
        self.told = [faster_fifo.Queue(4096, **plain) for _ in range(self.clients)]

    def serve(self, ready: Callable[[], None]) -> None:
        ready()
        while True:
            for data in self.asked.get_many(timeout=1e6):
                self.told[data[-1]].put(answer(data[:-1]))

    def connect(self, client: int) -> Ask:
        mine = bytes([client])

        def ask(array: Any) -> int:
            self.asked.put(array.tobytes() + mine)
            return ANSWER.unpack(self.told[client].get(timeout=1e6))[0]

        return ask


PEERS = (ShmbridgeBothC, ShmbridgeC, Shmbridge, Iceoryx2, Iceoryx2Events, SharedMemory)

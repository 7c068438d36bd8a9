"""Peers in shared memory: shmbridge, iceoryx2, the standard library's blocks."""

from collections.abc import Callable
from ctypes import c_uint8
from typing import Any

import numpy as np

from bench.transport.peers_base import ANSWER, Ask, Peer, answer, model

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

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_ask"), f"shm://{self.id}"]


class ShmbridgeBothC(Shmbridge):
    name = "shmbridge, C on both sides"

    def server(self) -> list[str]:
        room = str(self.size + 4096)
        return [str(self.build / "host"), "adaptive", "-1", room, str(self.clients)]

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_ask"), f"shm://{self.said}"]


class Iceoryx2(Peer):
    """Both sides poll, as its own benchmarks do: iceoryx2, benchmarks/request-response."""

    name = "iceoryx2, polling"
    needs = ("iceoryx2",)
    events = False

    def _open(self) -> tuple[Any, Any, Callable[[str], Any]]:
        import iceoryx2 as iox2

        iox2.set_log_level(iox2.LogLevel.Error)
        node, slices = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc), iox2.Slice[c_uint8]

        def named(name: str) -> Any:
            return node.service_builder(iox2.ServiceName.new(self.id + name))

        service = named("").request_response(slices, slices).open_or_create()
        return (
            iox2.Duration.from_secs(1),
            service,
            lambda name: named(name).event().open_or_create(),
        )

    def serve(self, ready: Callable[[], None]) -> None:
        second, service, event = self._open()
        server = service.server_builder().initial_max_slice_len(ANSWER.size).create()
        came = event("server").listener_builder().create()
        told = [event(str(i)).notifier_builder().create() for i in range(self.clients)]
        ready()
        while True:
            if self.events:
                came.timed_wait(second)
            while (request := server.receive()) is not None:
                data = np.frombuffer(request.payload().as_memory_view(), np.uint8)
                reply, client = request.loan_slice_uninit(ANSWER.size), data[-1]
                advice = model(data[:-1].view(np.float32))
                ANSWER.pack_into(reply.payload().as_memory_view(), 0, advice)
                reply.assume_init().send()
                request.delete()
                if self.events:
                    told[client].notify()

    def connect(self, client: int) -> Ask:
        second, service, event = self._open()
        asker = service.client_builder().initial_max_slice_len(self.size + 1).create()
        came = event(str(client)).listener_builder().create()
        told = event("server").notifier_builder().create()

        def ask(array: Any) -> int:
            request = asker.loan_slice_uninit(self.size + 1)
            to = np.frombuffer(request.payload().as_memory_view(), np.uint8)
            to[:-1], to[-1] = array.view(np.uint8), client
            pending = request.assume_init().send()
            if self.events:
                told.notify()
            while (reply := pending.receive()) is None:
                if self.events:
                    came.timed_wait(second)
            return int(ANSWER.unpack(reply.payload().as_memory_view())[0])

        return ask


class Iceoryx2Events(Iceoryx2):
    name = "iceoryx2, events"
    events = True


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


ICEORYX2 = (Iceoryx2, Iceoryx2Events)
PEERS = (ShmbridgeBothC, ShmbridgeC, Shmbridge, *ICEORYX2, SharedMemory)

"""Peers: Tachyon, whose pairs of processes share two rings, and the bare minimum.

Tachyon's C API is in its sdist, which needs C++23: clang++-22 and lld. See bench/README.md."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from bench.program import BENCH
from bench.sources import fetch
from bench.transport.peers_base import Ask, Peer, answer

FOREVER = (1 << 32) - 1  # spins: the peer does not wake who polls


def build_tachyon(directory: Path) -> None:
    """The C programs. OSError, CalledProcessError, StopIteration: left out."""
    core = fetch(directory, "tachyon-ipc==0.5.1", CXX="clang++-22") / "_core_local"
    near, include = BENCH / "transport", f"-I{core / 'include'}"
    cxx = ["clang++-22", "-std=c++23", "-O3", "-march=native", "-fno-exceptions", "-fno-rtti"]
    subprocess.run([*cxx, include, "-c", *core.glob("src/*.cpp")], check=True, cwd=directory)
    objects = [directory / f"{file.stem}.o" for file in core.glob("src/*.cpp")]
    for names in (["peers_tachyon", "peers_ask"], ["peers_tachyon_host"]):
        files = [near / f"{name}.c" for name in names]
        flags = ["-std=c2x", "-O3", "-D_GNU_SOURCE", include, f"-I{near}"]
        linked = [*objects, "-lstdc++", "-lm", "-pthread", "-lrt", "-o", directory / names[0]]
        subprocess.run(["clang-22", *flags, *files, *linked], check=True)


class Tachyon(Peer):
    """docs: rpc_listen, rpc_connect; zero-copy calls. Normal: 10 000 spins, then a futex."""

    name = "Tachyon"
    needs: tuple[str, ...] = ("tachyon",)
    polling = 0

    def serve(self, ready: Callable[[], None]) -> None:
        threads = [Thread(target=self.answer, args=[i]) for i in range(self.clients)]
        for thread in threads:
            thread.start()
        ready()
        threads[0].join()

    def answer(self, client: int) -> None:
        import tachyon

        bus = tachyon.RpcBus.rpc_listen(f"{self.folder}/{client}", 1 << 20, 1 << 16)
        bus.set_polling_mode(self.polling)
        while True:
            with bus.serve(*[FOREVER] * self.polling) as request:
                with memoryview(request) as view:
                    advice = answer(view)
                number = request.correlation_id
            bus.reply(number, advice, 1)

    def connect(self, client: int) -> Ask:
        import tachyon

        bus = None
        while bus is None:
            try:
                bus = tachyon.RpcBus.rpc_connect(f"{self.folder}/{client}")
            except Exception:  # its thread does not listen yet
                time.sleep(0.001)
        bus.set_polling_mode(self.polling)

        def ask(array: object) -> int:
            number = bus.call(memoryview(array).cast("B"), 1)  # type: ignore[arg-type]
            with bus.wait(number, *[FOREVER] * self.polling) as reply, memoryview(reply) as view:
                return int.from_bytes(view, "little")

        return ask


class TachyonPolling(Tachyon):
    name = "Tachyon, polling"
    polling = 1


class TachyonC(Tachyon):
    name = "Tachyon, C on both sides"
    needs = ("peers_tachyon",)

    def server(self) -> list[str]:
        host = str(self.build / "peers_tachyon_host")
        return [host, str(self.folder), str(self.clients), str(self.polling)]

    def program(self, client: int) -> list[str]:
        mode = "polling:" if self.polling else ""
        return [str(self.build / "peers_tachyon"), f"{mode}{self.folder}/{client}"]


class TachyonPollingC(TachyonC):
    name = "Tachyon, polling, C on both sides"
    polling = 1


class Lines(Peer):
    name = "two cache lines, C on both sides"

    def serve(self, ready: Callable[[], None]) -> None:
        ready()
        time.sleep(1e6)

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_lines"), "-"]


PEERS = (Lines, TachyonPollingC, TachyonC, TachyonPolling, Tachyon)

"""One question and answer through every library: python bench peers [--only NAMES]
[--json FILE]

2 KB and 100 KB, with and without two endless loops, from one client and from eight; p50, p99,
p99.9, the rate, and the CPU of both sides. README.md describes the requirements and
the method.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would be forked
import numpy as np

from bench.builds import build, build_grpc
from bench.pages.results_page import report
from bench.program import cpu_of, endless_loops, machine, options, write
from bench.transport.peers_base import Ask, Peer
from bench.transport.peers_hosts import PEERS as HOSTS
from bench.transport.peers_memory import ASKER
from bench.transport.peers_memory import PEERS as MEMORY
from bench.transport.peers_sockets import PEERS as SOCKETS
from bench.transport.peers_sockets import Pipe, UnixSocket
from bench.transport.peers_tachyon import PEERS as TACHYON
from bench.transport.peers_tachyon import build_tachyon

LOOPS, CLIENTS = (0, 2), (1, 8)
ROUNDS, SECONDS = 5, 0.4
PEERS: tuple[type[Peer], ...] = (*MEMORY, *TACHYON, Pipe, UnixSocket, *SOCKETS, *HOSTS)
WARM, WARM_SECONDS = 50, 0.1  # questions before, or as many as fit
PATIENCE = 15.0  # seconds for a process to start, and for a question
PACKAGES = ("iceoryx2", "tachyon-ipc", "pyzmq", "grpcio", "compilerinterface")


class Child:
    """A child process that runs `work(read, write)` with the ends of two pipes, as 0 and 1 for a
    program."""

    def __init__(self, work: Callable[[], None], argv: Sequence[str] = ()) -> None:
        (inner_in, self.to), (self.out, inner_out) = os.pipe(), os.pipe()
        signal.pthread_sigmask(
            signal.SIG_BLOCK, [signal.SIGTERM]
        )  # the child must not run our handler
        self.pid = os.fork()
        if self.pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.close(inner_in)
            os.close(inner_out)
            return
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.dup2(inner_in, 0)
            os.dup2(inner_out, 1)
            os.close(self.to)
            os.close(self.out)
            if argv:
                os.execv(argv[0], list(argv))
            work()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(1)

    def read(self, size: int, server: Child | None = None) -> bytes:
        """Exactly this many bytes. Errors: RuntimeError."""
        data, until = b"", time.monotonic() + PATIENCE
        while len(data) < size:
            ends = [self.out, *([server.out] if server else [])]
            came = select(ends, [], [], max(0, until - time.monotonic()))[0]
            if self.out not in came:
                raise RuntimeError(
                    "the server has ended" if came else f"no answer within {PATIENCE:g} s"
                )
            part = os.read(self.out, size - len(data))
            if not part:
                raise RuntimeError("a process has ended")
            data += part
        return data

    def close(self) -> None:
        if not self.pid:
            return
        os.close(self.to)
        os.close(self.out)
        os.kill(self.pid, signal.SIGTERM)
        until = time.monotonic() + 2
        while not os.waitpid(self.pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            time.sleep(0.002)
        self.pid = 0


def serve(peer: Peer) -> None:
    peer.serve(lambda: (os.write(1, b"ready\n"), None)[1])


def ask_for(ask: Ask, size: int, seconds: float) -> None:
    """peers_ask.c's main, in Python."""
    array = np.full(size // 4, 0.2, np.float32)
    until = time.monotonic() + WARM_SECONDS
    for _ in range(WARM):
        if time.monotonic() < until:
            ask(array)
    os.write(1, b"r")
    while os.read(0, 1):
        samples, clock = [], time.perf_counter_ns
        before = clock()
        end = before + seconds * 1e9
        while before < end:
            ask(array)
            now = clock()
            samples.append(now - before)
            before = now
        with os.fdopen(os.dup(1), "wb") as out:
            out.write(np.array([len(samples), *samples], np.int64).tobytes())


@contextmanager
def child(work: Callable[[], None], argv: Sequence[str] = ()) -> Iterator[Child]:
    made = Child(work, argv)
    try:
        yield made
    finally:
        made.close()


def connected(
    stack: ExitStack,
    kind: Callable[..., Peer],
    size: int,
    clients: int,
    seconds: float,
    build: Path,
) -> tuple[Child, list[Child]]:
    """A server, and its clients, which ask when they are told to."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers")))
    peer = kind(size, clients, folder, build)
    server = stack.enter_context(child(lambda: serve(peer), peer.server()))
    while not peer.said.endswith("\n"):
        peer.said += server.read(1).decode()
    peer.said = peer.said.strip()
    askers = []
    for i in range(clients):
        argv = peer.program(i)
        argv = [*argv, str(size), str(seconds)] if argv else []
        askers.append(
            stack.enter_context(child(lambda i=i: ask_for(peer.connect(i), size, seconds), argv))
        )
    for asker in askers:
        asker.read(1, server)
    return server, askers


def killed(kind: Callable[..., Peer], size: int, build: Path) -> float:
    """ms until the caller returns whose server was killed while it asks; inf: not in PATIENCE."""
    with ExitStack() as stack:
        server, (asker,) = connected(stack, kind, size, 1, 3 * PATIENCE, build)
        os.write(asker.to, b"g")
        time.sleep(0.2)
        os.kill(server.pid, signal.SIGKILL)
        start = time.monotonic()
        while not os.waitid(os.P_PID, asker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if time.monotonic() - start > PATIENCE:
                return float("inf")
            time.sleep(0.0002)
        return (time.monotonic() - start) * 1e3


def measure(
    kind: Callable[..., Peer], size: int, clients: int, seconds: float, build: Path
) -> dict[str, Any]:
    """One server and its clients; no others run. Errors: RuntimeError, OSError, ImportError."""
    with ExitStack() as stack:
        server, askers = connected(stack, kind, size, clients, seconds, build)
        host, near = cpu_of(server.pid), sum(cpu_of(each.pid) for each in askers)
        for asker in askers:
            os.write(asker.to, b"g")
        time.sleep(seconds)
        host, near = cpu_of(server.pid) - host, sum(cpu_of(each.pid) for each in askers) - near
        samples = []
        for asker in askers:
            count = int.from_bytes(asker.read(8, server), "little")
            samples.append(np.frombuffer(asker.read(8 * count, server), np.int64))
        server.close()  # first, or it would report that the clients have gone
        whole = np.concatenate(samples)
        return {
            "p50_us": float(np.percentile(whole, 50)) / 1e3,
            "p99_us": float(np.percentile(whole, 99)) / 1e3,
            "p99.9_us": float(np.percentile(whole, 99.9)) / 1e3,
            "per_second": len(whole) / seconds,
            "cpu_us": (host + near) / len(whole) * 1e6,
            "host_cpu_us": host / len(whole) * 1e6,
            "slowest_client": min(map(len, samples)) / max(map(len, samples)),
        }


def prepare(directory: Path) -> list[type[Peer]]:
    """Builds the programs. Returns the peers that can run here."""
    build(directory, [ASKER, ["host"], ["peers_lines", "peers_ask"]])
    for build_more in (
        lambda: build_grpc(directory, "peers_ask"),
        lambda: build_tachyon(directory),
    ):
        try:
            build_more()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"left out: {error!r}", file=sys.stderr)
    needed = {need for kind in PEERS for need in kind.needs}
    there = {each for each in needed if getattr(find_spec(each), "origin", None)}  # no mere folder
    missing = {each for each in needed - there if not (directory / each).exists()}
    for name in sorted(missing):
        print(f"left out: there is no package or program {name}", file=sys.stderr)
    return [kind for kind in PEERS if not missing.intersection(kind.needs)]


def run(
    kinds: Sequence[type[Peer]],
    sizes: Sequence[int],
    seconds: float,
    directory: Path,
    found: list[dict[str, Any]],
) -> None:
    """Adds a round to each row, a row being a peer in a situation."""
    for count in LOOPS:
        with endless_loops(count):
            for size, clients, kind in itertools.product(sizes, CLIENTS, kinds):
                about = {"peer": kind.name, "bytes": size, "loops": count, "clients": clients}
                row = next((row for row in found if about.items() <= row.items()), None)
                if row is None:
                    found.append(row := {**about, "rounds": []})
                try:
                    row["rounds"].append(measure(kind, size, clients, seconds, directory))
                except (RuntimeError, OSError) as error:
                    print(f"left out: {about}: {type(error).__name__}: {error}", file=sys.stderr)


def main() -> int:
    parser = options(__doc__, ROUNDS)
    parser.add_argument(
        "--only", default="", help="parts of the names of those to measure, separated by commas"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"of one measurement (default {SECONDS})"
    )
    parser.add_argument(
        "--kill", action="store_true", help="only what a caller sees whose server is killed"
    )
    parser.add_argument(
        "--bytes", default="2000,100000", help="of a question (default 2000,100000)"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    old = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    results = {"machine": machine(PACKAGES), "rows": old.get("rows", [])}
    wanted, sizes = given.only.split(","), [int(size) for size in given.bytes.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        kinds = [
            kind for kind in prepare(Path(directory)) if any(part in kind.name for part in wanted)
        ]
        for kind in kinds if given.kill else []:
            each = [killed(kind, sizes[0], Path(directory)) for _ in range(given.rounds)]
            shown = [f"{ms:.1f} ms" if ms < PATIENCE * 1e3 else "never" for ms in sorted(each)]
            print(f"{kind.name:36} returns after:", *shown)
        for _ in range(0 if given.kill else given.rounds):
            try:
                run(kinds, sizes, given.seconds, Path(directory), results["rows"])
            finally:
                write(given.json, results)
    if not given.kill:
        report("peers", results, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

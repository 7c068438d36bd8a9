"""How many runners one host can serve: python bench/scale.py [--batches] [--json FILE]

Requests a second, the host's CPU for each, and p50 and p99, with 1 to 64 C runners that ask without
a pause, with single and batched answers; and the CPU of a host with 256 channels, without runners
and with 256 that are idle.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from peers import Child, child, measure, serve
from peers_base import model
from peers_memory import ASKER, ShmbridgeC
from peers_page import ranged, scale_table
from program import options, write
from run import build, machine

RUNNERS, CHANNELS, BYTES = (1, 2, 4, 8, 16, 32, 64), 256, 2_000
BATCHED = (1, 2, 4, 8)


class Singles(ShmbridgeC):
    """host.serve(model)"""

    def serve(self, ready: Callable[[], None]) -> None:
        import shmbridge

        with shmbridge.Host(self.id, channels=self.channels, request_bytes=1 << 14) as host:
            ready()
            host.serve(self.answer, max_batch=self.batch)

    @property
    def channels(self) -> int:
        return self.clients

    batch = 1

    @staticmethod
    def answer(request: Any) -> Any:
        return model(request["x"])


class Batches(Singles):
    """host.serve(model, max_batch=64)"""

    batch = 64

    @staticmethod
    def answer(batch: Any) -> Any:
        return (batch["x"][:, 0] < 1).astype("int64")


class ManyChannels(Singles):
    """host.serve(model), channels=256"""

    channels = CHANNELS  # type: ignore[assignment]


def one_by_one(host: Any, read: bool) -> None:
    import numpy as np

    advice = np.int64(1)
    for request in host:
        if read:
            request["x"].sum()
        request.reply(advice)


def in_batches(host: Any, read: bool) -> None:
    import numpy as np

    advice = [np.ones(size, np.int64) for size in range(9)]
    for batch in host.batches(8):
        if read:
            batch["x"].sum(axis=1)
        batch.reply(advice[len(batch)])


class Loop(Singles):
    """Answers the same always."""

    loop, read = staticmethod(one_by_one), False

    def serve(self, ready: Callable[[], None]) -> None:
        import shmbridge

        with shmbridge.Host(self.id, channels=self.clients, request_bytes=1 << 14) as host:
            ready()
            self.loop(host, self.read)


def compare(read: bool, count: int, rounds: int, seconds: float, place: Path) -> dict[str, Any]:
    """The host's CPU for a request, in us, of the two loops alternately."""
    cpu: dict[str, list[float]] = {"single": [], "batch": []}
    for _ in range(rounds):
        for name, loop in zip(cpu, (one_by_one, in_batches), strict=True):
            kind = type(name, (Loop,), {"loop": staticmethod(loop), "read": read})
            cpu[name].append(measure(kind, BYTES, count, seconds, place)["host_cpu_us"])
    return {"runners": count, "read": read, **cpu}


def comparison(row: dict[str, Any]) -> str:
    ratios = [b / a for a, b in zip(row["single"], row["batch"], strict=True)]
    return (
        f"{row['runners']} runners, {'sums' if row['read'] else 'constant'}: "
        f"{ranged(row['batch'])} us of CPU a request in batches, "
        f"{ranged(row['single'])} one by one: {ranged(ratios)} times"
    )


def idle(runners: int, seconds: float, directory: Path) -> float:
    """CPU of a host with 256 channels, as a share of a core."""
    with ExitStack() as stack:
        peer = ManyChannels(BYTES, runners, directory, directory)
        host: Child = stack.enter_context(child(lambda: serve(peer)))
        host.read(1)
        for i in range(runners):
            asker = stack.enter_context(child(lambda: None, [*peer.program(i), str(BYTES), "1"]))
            asker.read(1, host)
        time.sleep(0.2)
        before = host.cpu()
        time.sleep(seconds)
        return (host.cpu() - before) / seconds


def main() -> int:
    parser = options(__doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--batches", action="store_true", help="only the loops over batches")
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "batches": [], "rows": [], "idle": {}}
    with tempfile.TemporaryDirectory(prefix="scale") as directory:
        place = Path(directory)
        build(place, [ASKER])
        for read, count in product((False, True), BATCHED):
            found["batches"].append(compare(read, count, given.rounds, given.seconds, place))
            print(comparison(found["batches"][-1]), flush=True)
        for kind in () if given.batches else (Singles, Batches, ManyChannels):
            for count in RUNNERS:
                rounds = [
                    measure(kind, BYTES, count, given.seconds, place) for _ in range(given.rounds)
                ]
                found["rows"].append({"way": kind.__doc__, "runners": count, "rounds": rounds})
        for count in () if given.batches else (0, CHANNELS):
            found["idle"][count] = idle(count, 3, place)
    if not given.batches:
        print(*scale_table(found), sep="\n")
    write(given.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How many runners one host can serve: python bench/scale.py [--batches | --workers] [--json FILE]

Requests a second, the host's CPU for each, and p50 and p99, with 1 to 64 C runners that ask without
a pause, with single and batched answers. --workers: 16 such runners and a model that takes a
millisecond, in PyTorch and in ONNX Runtime, with one and with two workers of `shmbridge serve`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from peers import measure
from peers_base import model
from peers_memory import ASKER, ShmbridgeC
from peers_page import ranged
from program import SHMBRIDGE, options, report, write
from run import build, machine

RUNNERS, BATCHED, ASKERS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8), 16
BYTES = 2_000
MODEL = Path(__file__).with_name("workers_model.py").absolute()


class Singles(ShmbridgeC):
    """host.serve(model)"""

    def serve(self, ready: Callable[[], None]) -> None:
        import shmbridge

        with shmbridge.Host(self.id, channels=self.clients, request_bytes=1 << 14) as host:
            ready()
            host.serve(self.answer, max_batch=self.batch)

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


class Serve(ShmbridgeC):
    """`shmbridge serve --workers`, with a model of workers_model.py."""

    def server(self) -> list[str]:
        channels = ["--workers", str(self.workers), "--channels", str(self.clients)]
        return [SHMBRIDGE, "serve", self.id, *channels, *self.model]

    workers, model = 1, ("",)


def workers(count: int, rounds: int, seconds: float, place: Path) -> list[dict[str, Any]]:
    """The rows of both models, with one and two workers alternately."""
    subprocess.run([sys.executable, MODEL, place / "model.onnx"], check=True)
    torch, onnx = (
        ("--python", f"{MODEL}:advise"),
        ("--onnx", f"{place}/model.onnx"),
    )
    rows = []
    for name, words in (("PyTorch", torch), ("ONNX Runtime", onnx)):
        kinds = {n: type("", (Serve,), {"workers": n, "model": words}) for n in (1, 2)}
        found: dict[int, list[Any]] = {n: [] for n in kinds}
        for _ in range(rounds):
            for n, kind in kinds.items():
                found[n].append(measure(kind, BYTES, count, seconds, place))
        rows += [{"model": name, "workers": n, "rounds": each} for n, each in found.items()]
    return rows


def main() -> int:
    parser = options(__doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--batches", action="store_true", help="only the loops over batches")
    parser.add_argument("--workers", action="store_true", help="only the workers")
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(["torch"]), "rows": []}
    with tempfile.TemporaryDirectory(prefix="scale") as directory:
        place = Path(directory)
        build(place, [ASKER])
        if given.workers:
            found["rows"] = workers(ASKERS, given.rounds, given.seconds, place)
        elif given.batches:
            for read, count in product((False, True), BATCHED):
                found["rows"].append(compare(read, count, given.rounds, given.seconds, place))
                print(comparison(found["rows"][-1]), flush=True)
        else:
            for kind, count in product((Singles, Batches), RUNNERS):
                each = [
                    measure(kind, BYTES, count, given.seconds, place) for _ in range(given.rounds)
                ]
                found["rows"].append({"way": kind.__doc__, "runners": count, "rounds": each})
    if not given.batches:
        report("workers" if given.workers else "scale", found, given.json)
    else:
        write(given.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

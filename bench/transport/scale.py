"""How many runners one host can serve: python bench scale [--workers] [--json FILE]

Requests a second, the host's CPU for each, and p50 and p99, with 1 to 64 C runners that ask without
a pause, with single and batched answers. --workers: 16 such runners and a model that takes a
millisecond, in PyTorch and in ONNX Runtime, with one and with two workers of `shmbridge serve`.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from bench.builds import build
from bench.pages.results_page import report
from bench.program import SHMBRIDGE, machine, options, python
from bench.transport.peers import measure
from bench.transport.peers_base import model
from bench.transport.peers_memory import ASKER, ShmbridgeC

RUNNERS, ASKERS = (1, 2, 4, 8, 16, 32, 64), 16
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


class Serve(ShmbridgeC):
    """`shmbridge serve --workers`, with a model of workers_model.py."""

    def serve(self, ready: Callable[[], None]) -> None:
        words = ["--workers", str(self.workers), "--channels", str(self.clients), *self.model]
        begin = [SHMBRIDGE, "serve", self.id, "--background", *words]  # returns when all answer
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        try:
            subprocess.run(begin, check=True, stdout=subprocess.DEVNULL)
            ready()
            signal.pause()
        finally:
            subprocess.run([SHMBRIDGE, "stop", self.id], stdout=subprocess.DEVNULL)

    workers, model = 1, ("",)


def workers(count: int, rounds: int, seconds: float, place: Path) -> list[dict[str, Any]]:
    """The rows of both models, with one and two workers alternately."""
    subprocess.run(python("workers_model", place / "model.onnx"), check=True)
    torch, onnx = (("--python", f"{MODEL}:advise"), ("--onnx", f"{place}/model.onnx"))
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
    parser.add_argument("--workers", action="store_true", help="only the workers")
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(["torch"]), "rows": []}
    with tempfile.TemporaryDirectory(prefix="scale") as directory:
        place = Path(directory)
        build(place, [ASKER])
        if given.workers:
            found["rows"] = workers(ASKERS, given.rounds, given.seconds, place)
        else:
            for kind, count in product((Singles, Batches), RUNNERS):
                each = [
                    measure(kind, BYTES, count, given.seconds, place) for _ in range(given.rounds)
                ]
                found["rows"].append({"way": kind.__doc__, "runners": count, "rounds": each})
    report("workers" if given.workers else "scale", found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

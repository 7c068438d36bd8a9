"""What `shmbridge serve --workers` gains: python bench/workers.py [--json FILE]

16 C runners ask without a pause; the model computes for 1 ms on one thread, as a Python function
with numpy and as an ONNX file. Questions a second, p50 and p99, with 1, 2, … workers, alternating.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers import measure
from peers_memory import ShmbridgeC
from run import build, machine

from shmbridge._bridge import overview

COMPILERS, FLOATS, SIDE = 16, 500, 256
SECONDS = 1e-3  # that the model computes
POLICY = """
import os
import numpy as np

MATRIX = np.full(({side}, {side}), 0.001, np.float32)
WORK = int(os.environ["WORK"])

def advise(request):
    values = MATRIX[0] * request["x"][0]
    for _ in range(WORK):
        values = MATRIX @ values
    return int(values[0] < 1)
"""


def write_onnx(path: Path, layers: int) -> None:
    """x: float32[FLOATS] to advice: int64, through that many matrices."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    first = np.full((FLOATS, SIDE), 0.001, np.float32)
    matrix = np.full((SIDE, SIDE), 0.001, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "first"], ["v0"])]
    for i in range(layers):
        nodes.append(helper.make_node("MatMul", [f"v{i}", "matrix"], [f"v{i + 1}"]))
    nodes.append(helper.make_node("ReduceSum", [f"v{layers}"], ["sum"], keepdims=0))
    nodes.append(helper.make_node("Cast", ["sum"], ["advice"], to=TensorProto.INT64))
    weights = [numpy_helper.from_array(first, "first"), numpy_helper.from_array(matrix, "matrix")]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [FLOATS])],
        [helper.make_tensor_value_info("advice", TensorProto.INT64, [])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


def seconds_of(call: Callable[[], object]) -> float:
    """The median of 100 calls."""
    found = []
    for _ in range(100):
        before = time.perf_counter()
        call()
        found.append(time.perf_counter() - before)
    return statistics.median(found)


def make_models(place: Path) -> dict[str, list[str]]:
    """`serve`'s options for each model, whose work is set to SECONDS."""
    import onnxruntime

    x = np.full(FLOATS, 0.2, np.float32)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    matrix, vector = np.full((SIDE, SIDE), 0.001, np.float32), np.ones(SIDE, np.float32)
    os.environ["WORK"] = str(max(1, round(SECONDS / seconds_of(lambda: matrix @ vector))))
    (place / "policy.py").write_text(POLICY.format(side=SIDE))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    layers, path = 50, place / "model.onnx"
    for _ in range(3):
        write_onnx(path, layers)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        once = seconds_of(lambda session=session: session.run(None, {"x": x}))
        layers = max(1, round(layers * SECONDS / once))
    return {"python": ["--python", f"{place}/policy.py:advise"], "onnx": ["--onnx", str(path)]}


class Served(ShmbridgeC):
    """shmbridge serve, in another process."""

    model: list[str]
    workers: int

    def serve(self, ready: Callable[[], None]) -> None:
        room = ["--channels", str(self.clients), "--request-bytes", "16K"]
        words = [self.id, *self.model, *room, "--workers", str(self.workers)]
        command = [sys.executable, "-m", "shmbridge.cli", "serve", *words]
        signal.signal(signal.SIGTERM, lambda *_: serving.terminate())
        serving = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL)
        while sum(bridge.looping for bridge in overview.bridges(self.id)) < self.workers:
            time.sleep(0.05)
        ready()
        serving.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "rounds": []}
    with tempfile.TemporaryDirectory(prefix="workers") as directory:
        place = Path(directory)
        models = make_models(place)
        build(place, [["peers_ask"]])
        for _ in range(options.rounds):
            for name, words in models.items():
                for count in options.workers:
                    kind = type("Chosen", (Served,), {"model": words, "workers": count})
                    one = measure(kind, FLOATS * 4, COMPILERS, options.seconds, place)
                    found["rounds"].append({"model": name, "workers": count, **one})
    print(f"{'model':8}{'workers':>8}{'per second':>22}{'p50 ms':>20}{'p99 ms':>20}")
    for name in models:
        for count in options.workers:
            chosen = [r for r in found["rounds"] if (r["model"], r["workers"]) == (name, count)]
            columns = [
                [each[key] / unit for each in chosen]
                for key, unit in (("per_second", 1), ("p50_us", 1e3), ("p99_us", 1e3))
            ]
            rate, p50, p99 = (
                f"{statistics.median(c):.{digits}f} ({min(c):.{digits}f}-{max(c):.{digits}f})"
                for c, digits in zip(columns, (0, 2, 2), strict=True)
            )
            print(f"{name:8}{count:>8}{rate:>22}{p50:>20}{p99:>20}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

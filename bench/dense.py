"""One dense layer in ONNX Runtime, for each length of the sweep; as a program, the same in process.

dense.py MODELS CORE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

SWEEP = (500, *range(5_000, 50_001, 5_000))  # floats


def write(directory: Path, outputs: int) -> None:
    """Makes features[n] @ weights[n, outputs] for every n of the sweep."""
    from program import onnx_models

    models = onnx_models()
    directory.mkdir()
    for n in SWEEP:
        nodes = [models.node("MatMul", "features weights", "advice")]
        ports = [("features", models.T.FLOAT, [n])], [("advice", models.T.FLOAT, [outputs])]
        weights = {"weights": np.full((n, outputs), 1 / n, np.float32)}
        models.save(directory / f"{n}.onnx", nodes, *ports, weights)


def load(directory: str) -> dict[int, Any]:
    """The layers by their input's length, each on the calling thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return {
        int(path.stem): onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        for path in Path(directory).glob("*.onnx")
    }


def main() -> None:
    from blocks import serve_blocks

    models, core = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    layers = load(models)
    inputs = {n: np.empty(n, np.float32) for n in SWEEP}

    def trip(size: int) -> int:
        features = inputs[size // 4]
        features.fill(1)
        return int(layers[size // 4].run(None, {"features": features})[0][0])

    serve_blocks(trip)


if __name__ == "__main__":
    main()

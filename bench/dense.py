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
    from onnx import TensorProto, helper, numpy_helper, save

    directory.mkdir()
    for n in SWEEP:
        weights = numpy_helper.from_array(np.full((n, outputs), 1 / n, np.float32), "weights")
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["features", "weights"], ["advice"])],
            "dense",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, [n])],
            [helper.make_tensor_value_info("advice", TensorProto.FLOAT, [outputs])],
            [weights],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(model, str(directory / f"{n}.onnx"))


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

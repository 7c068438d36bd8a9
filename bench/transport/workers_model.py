"""Models that take about a millisecond of one core, for scale.py --workers: a perceptron for each of
50 instructions with 10 features, and the sign of the sum. As a program, it writes the ONNX file."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

INSTRUCTIONS, FEATURES, WIDTH = 50, 10, 256
TORCH_LAYERS, ONNX_LAYERS = 15, 38  # a millisecond of an AMD EPYC


def weights(layers: int) -> list[Any]:
    random, rows = np.random.default_rng(0), [FEATURES, *[WIDTH] * (layers - 1)]
    return [random.normal(0, 0.1, (n, WIDTH)).astype(np.float32) for n in rows]


TORCH = [torch.from_numpy(each) for each in weights(TORCH_LAYERS)]
torch.set_num_threads(1)


def advise(request: Any) -> int:
    with torch.inference_mode():
        h = torch.tensor(request["x"]).reshape(INSTRUCTIONS, FEATURES)
        for layer in TORCH:
            h = torch.relu(h @ layer)
        return int(h.sum() > 0)


def write_onnx(path: Path) -> None:
    from support import onnx_models as models

    node, to, layers = models.node, models.T, weights(ONNX_LAYERS)
    nodes = [node("Reshape", "x shape", "r0")]
    for i in range(len(layers)):
        nodes += [node("MatMul", f"r{i} w{i}", f"m{i}"), node("Relu", f"m{i}", f"r{i + 1}")]
    nodes += [node("ReduceSum", f"r{len(layers)}", "sum", keepdims=0)]
    nodes += [node("Greater", "sum zero", "above"), node("Cast", "above", "advice", to=to.INT64)]
    constants = {f"w{i}": each for i, each in enumerate(layers)}
    constants |= {"shape": np.array([INSTRUCTIONS, FEATURES]), "zero": np.float32(0)}
    ports = [("x", to.FLOAT, [INSTRUCTIONS * FEATURES])], [("advice", to.INT64, [])]
    models.save(path, nodes, *ports, constants)


if __name__ == "__main__":
    write_onnx(Path(sys.argv[1]))

"""What several examples do: build a plug-in, fetch sources, compile a linear model, compare it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge.training import Module, Task

BOOL, DOUBLE, INT64 = 9, 11, 7  # ONNX's numbers, for Cast
Ports = Mapping[str, tuple[Any, Sequence[int]]]


def build(source: Path, to: Path, *options: str) -> None:
    """Builds a plug-in with CMake."""
    bridge = said("shmbridge", "config", "--cmakedir")
    said("cmake", "-S", source, "-B", to, f"-Dshmbridge_DIR={bridge}", *options)
    said("cmake", "--build", to, "-j2")


def llvm() -> str:
    """The option that tells CMake where LLVM 22 is."""
    return f"-DLLVM_DIR={said('llvm-config-22', '--cmakedir')}"


def said(*words: object) -> str:
    """The output of a command. Errors: SystemExit, with its stderr."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.args}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout.strip()


def fetch(package: str, folder: Path) -> Path:
    """Downloads an sdist from PyPI and unpacks it, unless it is there: its folder."""
    name = package.replace("==", "-").replace("-", "_", package.count("-"))
    root = folder / name
    if not root.exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        said(*pip, "-d", folder, package)
        said("tar", "-xf", folder / f"{name}.tar.gz", "-C", folder)
    return root


def save_onnx(
    path: Path,
    nodes: Sequence[tuple[Any, ...]],
    inputs: Ports,
    outputs: Ports,
    constants: Mapping[str, Any],
) -> None:
    """Writes an ONNX model.

    Args:
        path: The file.
        nodes: (operator, inputs separated by spaces, output), and a dict of attributes, if any.
        inputs: By name, the dtype and the shape.
        outputs: The same.
        constants: Arrays by name.
    """
    from onnx import helper, numpy_helper, save

    def ports(of: Ports) -> list[Any]:
        dtypes = {name: helper.np_dtype_to_tensor_dtype(np.dtype(t)) for name, (t, _) in of.items()}
        return [helper.make_tensor_value_info(n, dtypes[n], shape) for n, (_, shape) in of.items()]

    made = [
        helper.make_node(kind, words.split(), [output], **(more[0] if more else {}))
        for kind, words, output, *more in nodes
    ]
    arrays = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(made, "policy", ports(inputs), ports(outputs), arrays)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def compile_linear(weights: Any, bias: Any, feature: str, folder: Path, argmax: bool) -> Path:
    """Compiles a linear model, via ONNX, to a library for aot://. Its advice is the place of the
    best score, or all scores.

    Args:
        weights: float64[inputs, scores].
        bias: float64[scores].
        feature: The name of the feature, float32[inputs].
        folder: Gets model.onnx and the library.
        argmax: Whether the advice is the place of the best score.
    """
    nodes: list[Any] = [("MatMul", f"{feature} weights", "product")]
    nodes.append(("Add", "product bias", "scores"))
    outputs: Ports = {"scores": ("float32", bias.shape)}
    if argmax:
        nodes.append(("ArgMax", "scores", "advice", {"axis": 0, "keepdims": 0}))
        outputs = {"advice": ("int64", ())}
    constants = {"weights": weights.astype("float32"), "bias": bias.astype("float32")}
    inputs = {feature: ("float32", weights.shape[:1])}
    save_onnx(folder / "model.onnx", nodes, inputs, outputs, constants)
    said("shmbridge", "compile", folder / "model.onnx", "-o", folder / "model.so")
    return folder / "model.so"


def alike(task: Task, modules: Iterable[Module], model: Callable[[Any], Any], library: Path) -> int:
    """For how many modules the compiler with the library makes the same as with the model in
    Python."""
    same = 0
    with Host(f"alike-{os.getpid()}") as host, host.start(model):
        for module in modules:
            outside, inside = task.run(module, host.url), task.run(module, f"aot://{library}")
            same += outside.ok and inside.ok and outside.scores == inside.scores
    return same

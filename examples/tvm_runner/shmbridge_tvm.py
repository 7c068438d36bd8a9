"""tvm:///MODEL.so: a model that Apache TVM has compiled, in the process that asks. The names of its
inputs and outputs are in MODEL.so.json, since a compiled model has no names.

    python -m shmbridge_tvm model.onnx model.so
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from shmbridge import InvalidError, MismatchError
from shmbridge.runners import RunnerKind


class Tvm(RunnerKind):
    """device: an option of the URL, such as "cuda"."""

    def __init__(self, where: str, device: str = "cpu") -> None:
        if not Path(where).is_file():
            raise InvalidError(f"expected a model that TVM has compiled, found no file {where!r}")
        self._ports = json.loads(Path(f"{where}.json").read_text())
        self._device = tvm.device(device)
        self._main = relax.VirtualMachine(tvm.runtime.load_module(where), self._device)["main"]

    def evaluate(
        self, features: Mapping[str, Any], want: np.dtype[Any] | None, deadline: float | None
    ) -> Any:
        ports = self._ports["inputs"]
        given = [tvm.runtime.tensor(_fit(port, features), self._device) for port in ports]
        made = self._main(*given)
        values = [
            value.numpy() for value in ([made] if isinstance(made, tvm.runtime.Tensor) else made)
        ]
        # As one row: so is the advice.
        if any(features[port["name"]].ndim < len(port["shape"]) for port in ports):
            values = [value[0] if value.shape[:1] == (1,) else value for value in values]
        return dict(zip(self._ports["outputs"], values, strict=True))

    def close(self) -> None:
        del self._main


def _fit(port: dict[str, Any], features: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The feature for an input, checked: TVM would read past the end of a short array."""
    name, dtype, shape = port["name"], port["dtype"], tuple(port["shape"])
    value, rows = features.get(name), [shape, *([shape[1:]] if shape[:1] == (1,) else [])]
    if (
        not isinstance(value, (np.ndarray, np.generic))
        or value.dtype != dtype
        or value.shape not in rows
    ):
        found = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else "no tensor"
        raise MismatchError(f'"{name}": the model expects {dtype}{list(shape)}, found {found}')
    return np.ascontiguousarray(value).reshape(shape)


def compile_onnx(model: Path | str, out: Path | str, target: str = "llvm") -> None:
    """Compiles an ONNX file whose inputs have known sizes; writes `out` and `out`.json."""
    import onnx
    from onnx.helper import tensor_dtype_to_np_dtype
    from tvm.relax.frontend.onnx import from_onnx

    graph = (loaded := onnx.load(model)).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [
        {
            "name": port.name,
            "dtype": np.dtype(tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)).name,
            "shape": [dim.dim_value for dim in port.type.tensor_type.shape.dim],
        }
        for port in graph.input
        if port.name not in weights
    ]
    tvm.compile(from_onnx(loaded), target=tvm.target.Target(target)).export_library(str(out))
    Path(f"{out}.json").write_text(
        json.dumps({"inputs": inputs, "outputs": [port.name for port in graph.output]})
    )


if __name__ == "__main__":
    compile_onnx(*sys.argv[1:])

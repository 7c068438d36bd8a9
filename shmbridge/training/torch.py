"""PyTorch models as ONNX files, for onnx:// and `shmbridge compile`: pip install torch
'shmbridge[export]'. In one call::

    export_onnx(model, "policy.onnx", {"features": np.zeros(300, np.float32)})
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge import connect
from shmbridge._compile.check import verdict
from shmbridge._compile.toolchain import Built, CompileError
from shmbridge._compile.wrap import Port
from shmbridge.errors import InvalidError, write_whole
from shmbridge.training._policies import evaluating

try:
    import onnxruntime  # noqa: F401 # checks what was written
    import onnxscript  # noqa: F401 # writes it
    import torch
except ImportError as error:
    raise ImportError(
        f"ONNX files are made by PyTorch: pip install torch 'shmbridge[export]': {error}"
    ) from error

__all__ = ["export_onnx"]


# Any, where there is no torch.
class _OneQuestion(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A model of rows as one of a single question: tensors by position, of the shapes that the
    compiler sends."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names, self.advice = model, names, [""]

    def forward(self, *features: Any) -> Any:
        rows = {name: each[None] for name, each in zip(self.names, features, strict=True)}
        advice = self.model(rows)
        if not isinstance(advice, Mapping):
            advice = {"advice": advice}
        self.advice = list(advice)
        return tuple(each[0] for each in advice.values())


def export_onnx(
    model: Any, path: str | os.PathLike[str], features: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Writes a model as an ONNX file whose inputs have the names, dtypes and shapes of the
    compiler's features.

    The file and the model are compared on random questions. The file is written only if both agree.

    Args:
        model: A `torch.nn.Module` on the CPU, in any mode. Its forward takes a dict of tensors
            [rows, ...] by feature, and returns the advice, a tensor [rows, ...], or a dict of these
            by name.
        path: The ONNX file.
        features: An example of a question: an array for each feature, as in a request.

    Raises:
        InvalidError: The outputs of the file differ from the model's.
        OSError: It cannot be written.
        Exception: An exception of PyTorch if it cannot export the model.
    """
    arrays = {name: np.asarray(value) for name, value in features.items()}
    tensors = tuple(torch.from_numpy(value.copy()) for value in arrays.values())
    one = _OneQuestion(model, list(arrays))
    with tempfile.TemporaryDirectory(prefix="shmbridge-export-") as folder, evaluating(model):
        with torch.no_grad():
            try:
                one(*tensors)  # names the advice
            except Exception as error:
                found = ", ".join(f"{name}: {[1, *a.shape]}" for name, a in arrays.items())
                error.add_note(f"The model got {found}. An example is one question, without rows.")
                raise
        file = Path(folder) / "model.onnx"
        names = {"input_names": one.names, "output_names": one.advice}
        with warnings.catch_warnings(), _quietly():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                one, tensors, file, dynamo=True, external_data=False, verbose=False, **names
            )
        _check(one, file, arrays)
        write_whole(path, file.read_bytes())


def _check(one: _OneQuestion, file: Path, features: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Asks both the same, as `shmbridge compile` does."""

    def reference(arrays: Sequence[Any]) -> Sequence[Any]:
        with torch.no_grad():
            return [each.numpy() for each in one(*map(torch.from_numpy, arrays))]

    inputs = [Port(name, value.dtype.name, value.shape) for name, value in features.items()]
    outputs = [Port(name, "", ()) for name in one.advice]
    with connect(f"onnx://{file}") as runner:
        try:
            agrees, said = verdict(Built(file, inputs, outputs, reference, "the model"), runner)
        except CompileError as error:
            agrees, said = False, str(error)
    if not agrees:
        raise InvalidError(
            f"the ONNX file: {said}: expected a model that gives numbers, which depend only on its "
            "inputs"
        )


@contextmanager
def _quietly() -> Any:
    """Without the exporter's words about packages that it does not need."""
    import logging

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

"""ONNX models in ONNX Runtime's Python package, for hosts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge._values.dtypes import TensorSpec
from shmbridge._values.tensor import Array, describe
from shmbridge.errors import InvalidError, MismatchError, UnsupportedError

DTYPE_OF_ONNX = {
    "tensor(bool)": np.bool_,
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    **{
        f"tensor({sign}int{bits})": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


class OnnxModel:
    """A model in ONNX Runtime that maps features by name to advice: its only output, or a dict of
    several by name.

    With batch=False it receives one request at a time. Features have the shape of a model input, or
    omit its first dim if that is 1 or symbolic; the advice omits it then, too. With batch=True all
    arrays have an additional first dim, which is the model's first. Features that the model does
    not take are ignored. Raises MismatchError for missing or wrong features.

    Errors: UnsupportedError (no ONNX Runtime), InvalidError (a model that cannot be loaded, or that
        has inputs or outputs other than tensors of numbers).
    """

    def __init__(self, path: Path, threads: int = 1, batch: bool = False) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise UnsupportedError(
                "ONNX models need ONNX Runtime: pip install 'shmbridge[onnx]'"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has its own, without a common base
            raise InvalidError(
                f"{path}: expected a model that ONNX Runtime can load: {_line(error)}"
            ) from error
        self._session = session
        self._batch = batch
        self.inputs = [_spec(path, node) for node in session.get_inputs()]
        self.outputs = [_spec(path, node) for node in session.get_outputs()]
        self._names = [spec.name for spec in self.outputs]

    def check_batch(self, size: int) -> None:
        """Raises InvalidError unless the model takes batches of up to `size` rows."""
        for spec in self.inputs:
            if not spec.shape or spec.shape[0] is not None:
                raise InvalidError(
                    f"the model's input {spec} takes no batches of up to {size}: export it with a "
                    "symbolic first dim, or serve without batches"
                )

    def __call__(self, question: Mapping[str, Any]) -> Any:
        feeds, expanded = {}, False
        for spec in self.inputs:
            value: Any = question.get(spec.name)
            fitted = self._fit(spec, value) if isinstance(value, np.ndarray) else None
            if fitted is None:
                raise MismatchError(
                    f"the model expects {self.expects}; found "
                    f"{describe(dict(question)) or 'nothing'}"
                )
            expanded |= fitted.ndim > value.ndim
            feeds[spec.name] = np.ascontiguousarray(fitted)
        values = self._session.run(None, feeds)
        if expanded:
            values = [value[0] if np.shape(value)[:1] == (1,) else value for value in values]
        return values[0] if len(values) == 1 else dict(zip(self._names, values, strict=True))

    def _fit(self, spec: TensorSpec, value: Array) -> Array | None:
        """The feature as the model wants it, or None."""
        if spec.matches(value.dtype, value.shape):
            return value
        if not self._batch:
            form = value[None]
        elif value.shape[1:2] == (1,):  # each request has the model's first dim, which is 1
            form = value[:, 0]
        else:
            return None
        return form if spec.matches(form.dtype, form.shape) else None

    @property
    def expects(self) -> str:
        """Names, dtypes and shapes of the features; ? is a size that the model leaves open."""
        return ", ".join(map(str, self.inputs))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _spec(path: Path, node: Any) -> TensorSpec:
    if node.type not in DTYPE_OF_ONNX:
        raise InvalidError(
            f"{path}: {node.name}: expected a tensor of numbers, found {node.type}: export the "
            "model without it "
            "(scikit-learn: options={'zipmap': False})"
        )
    return TensorSpec(
        node.name,
        DTYPE_OF_ONNX[node.type],
        tuple(d if isinstance(d, int) else None for d in node.shape),
    )

"""The models that a command line names."""

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge import Batch, connect
from shmbridge.errors import InvalidError
from shmbridge.runners.python import load


def load_python(place: str, option: str = "--python") -> Callable[[Mapping[str, Any]], Any]:
    """The function that "module:function" or "/folder/file.py:function" names; the current
    directory is searched first. InvalidError: why not, with the option that named it."""
    # Python takes its own copy for a file of the same size and second: an edited policy would not
    # be read again.
    sys.dont_write_bytecode = True
    try:
        return load(place, os.getcwd())
    except InvalidError as error:
        raise InvalidError(f"{option} {error}") from error


class OnnxModel:
    """The model of an ONNX file, which a runner of `onnx://` asks. Errors: `connect`'s.

    Attributes:
        inputs: The features that it expects.
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        # Each compiler has its own deadline for the advice.
        self.runner = connect(f"onnx://{path.resolve()}?threads={threads}", deadline=math.inf)
        self.inputs = self.runner.expected() or {}

    def check_batch(self, size: int) -> None:
        """Raises InvalidError unless the model takes batches of up to `size` rows."""
        for spec in self.inputs.values():
            if not spec.shape or spec.shape[0] is not None:
                raise InvalidError(
                    f"the model's input {spec} takes no batches of up to {size}: export it with a "
                    "symbolic first dim, or serve without batches"
                )

    def __call__(self, question: Mapping[str, Any]) -> Any:
        if isinstance(question, Batch):
            question = {name: self._rows(name, rows) for name, rows in question.items()}
        return self.runner.evaluate(question)

    def _rows(self, name: str, rows: Any) -> Any:
        """Without the first dim of each request where that is the model's, too."""
        spec = self.inputs.get(name)
        twice = isinstance(rows, np.ndarray) and rows.shape[1:2] == (1,)
        return rows[:, 0] if spec and twice and rows.ndim > len(spec.shape or ()) else rows

"""The models that a command line names."""

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shmbridge import connect
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

    def __call__(self, question: Mapping[str, Any]) -> Any:
        return self.runner.evaluate(question)

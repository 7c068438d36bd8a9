"""A model behind a pair of named pipes, as bare as can be.

python -m shmbridge.demo.pipe QUESTIONS ANSWERS MODEL, where MODEL is an ONNX file or module:function, as for
`shmbridge serve`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge._host.onnx import OnnxModel
from shmbridge.runners.python import load

QUESTION_BYTES = 64  # float32[16], unframed; an answer is an int64


def serve(questions: str, answers: str, model: Callable[[Mapping[str, Any]], Any]) -> None:
    """Answers until the other side closes its end."""
    print("ready", flush=True)
    reading, writing = os.open(questions, os.O_RDONLY), os.open(answers, os.O_WRONLY)
    while question := os.read(reading, QUESTION_BYTES):
        advice = model({"features": np.frombuffer(question, np.float32)})
        os.write(writing, int(advice).to_bytes(8, sys.byteorder))


if __name__ == "__main__":
    which = sys.argv[3]
    serve(
        sys.argv[1],
        sys.argv[2],
        OnnxModel(Path(which)) if which.endswith(".onnx") else load(which, os.getcwd()),
    )

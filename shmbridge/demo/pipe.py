"""The toy model behind a pair of named pipes, as bare as can be: python -m shmbridge.demo.pipe QUESTIONS ANSWERS [ONNX]."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from shmbridge.cli.model import Model, OnnxModel
from shmbridge.demo.model import advise

QUESTION_BYTES = 64  # float32[16], unframed; an answer is an int64


def serve(questions: str, answers: str, model: Model) -> None:
    """Answers until the other side closes its end."""
    print("ready", flush=True)
    reading, writing = os.open(questions, os.O_RDONLY), os.open(answers, os.O_WRONLY)
    while question := os.read(reading, QUESTION_BYTES):
        os.write(writing, model({"features": np.frombuffer(question, np.float32)}).tobytes())


if __name__ == "__main__":
    paths = sys.argv[1:]
    serve(paths[0], paths[1], OnnxModel(Path(paths[2])) if len(paths) > 2 else advise)

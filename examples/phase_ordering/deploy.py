"""Runs a policy inside opt, without Python: in ONNX Runtime and, if it compiles, as machine code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import shmbridge
from shmbridge.training import Module, Task


def deploy(
    policy: Callable[[Any], Any],
    onnx: Path,
    task: Task,
    modules: Iterable[Module],
    compiled: bool = True,
) -> dict[str, int]:
    """Compiles each module with a policy in this process, with onnx:// and with aot://, and
    compares them.

    Args:
        policy: The policy in Python.
        onnx: The same, as an ONNX model. The library is written to the same folder.
        task: How to compile and score.
        modules: The modules to compile.
        compiled: Also with aot://, which runs no tree ensembles.

    Returns:
        How many modules there are ("modules"), and for how many of them the decisions ("decisions")
            and all scores ("scores") are the same.
    """
    inside = [f"onnx://{onnx}"]
    if compiled:
        library = onnx.with_suffix(".so")
        words = ["shmbridge", "compile", onnx, "-o", library]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        inside.append(f"aot://{library}")
    counts = {"modules": 0, "decisions": 0, "scores": 0}
    with (
        shmbridge.Host(f"phase-ordering-{os.getpid()}") as host,
        host.start(policy, max_batch=2),
    ):
        for module in modules:
            outcomes = [task.run(module, url) for url in (host.url, *inside)]
            counts["modules"] += 1
            counts["decisions"] += len({outcome.stderr for outcome in outcomes}) == 1
            counts["scores"] += len({str(outcome.scores) for outcome in outcomes}) == 1
    return counts

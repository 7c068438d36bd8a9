"""Runs the trained policy inside opt, without Python: in ONNX Runtime and as machine code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from policy import Policy
from search import everything

import shmbridge
from shmbridge.training import Module


def deploy(policy: Policy, folder: Path, modules: Iterable[Module]) -> dict[str, int]:
    """Compiles each module with the policy in this process, with onnx:// and with aot://, and
    compares them.

    Args:
        policy: Written to `folder` as policy.onnx and policy.so.
        folder: The folder for both.
        modules: The modules to compile.

    Returns:
        How many modules there are ("modules"), and for how many of them the decisions ("decisions")
            and all scores ("scores") are the same.
    """
    policy.save_onnx(folder / "policy.onnx")
    words = ["shmbridge", "compile", folder / "policy.onnx", "-o", folder / "policy.so"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    counts = {"modules": 0, "decisions": 0, "scores": 0}
    task = everything()
    with (
        shmbridge.Host(f"phase-ordering-{os.getpid()}") as host,
        host.start(policy.likeliest, max_batch=2),
    ):
        for module in modules:
            urls = [host.url, f"onnx://{folder}/policy.onnx", f"aot://{folder}/policy.so"]
            outcomes = [task.run(module, url) for url in urls]
            counts["modules"] += 1
            counts["decisions"] += len({outcome.stderr for outcome in outcomes}) == 1
            counts["scores"] += len({str(outcome.scores) for outcome in outcomes}) == 1
    return counts

"""Training logs of the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge.logs import TrainingLog

SHMBRIDGE = [sys.executable, "-m", "shmbridge.cli"]

X = np.array([1, 2, 4], np.float32)


def records(path: Path) -> list[tuple[dict[str, Any], Any]]:
    return [(r.question, next(iter(r.advice.values()))) for r in TrainingLog(path)]


MODELS = """
import numpy as np

def total(request):
    return float(np.sum(request["x"]))

def totals(batch):
    return batch["x"].sum(axis=1)

def shifted(request):
    return float(np.sum(request["x"])) + 0.25 * (request["x"][0] > 1)

def inline(request):
    assert request["context"] == "default", dict(request)
    assert request["decision"] == "inlining_decision", dict(request)
    if request["callees"][0] > 6:
        raise ValueError("too many callees")
    return int(request["callees"][0] > 5)
"""


class Command(subprocess.Popen[str]):
    """One of the commands, while it runs."""

    def __init__(self, ready: str, *arguments: object, cwd: Path) -> None:
        super().__init__(
            [*SHMBRIDGE, *map(str, arguments)],
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""
        assert self.stdout
        while ready not in self.said:
            line = self.stdout.readline()
            assert line, self.said
            self.said += line

    def end(self, number: int = signal.SIGINT) -> str:
        self.send_signal(number)
        self.said += self.communicate(timeout=20)[0]
        assert self.returncode == 0, self.said
        return self.said


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*SHMBRIDGE, *map(str, arguments)]
    done = subprocess.run(command, cwd="/", text=True, capture_output=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    return done

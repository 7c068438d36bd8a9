"""Runs an example as its README says: in its quick form, and with --long in full."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(tmp_path, request):
    """run_example("mlir", *arguments): what `python run.py --quick *arguments` prints, in a copy of the folder and those beside it."""
    long = request.config.getoption("--long")

    def run(name, *arguments, quick=not long, seconds=3600 if long else 120):
        copy = tmp_path / "examples"  # some examples build on others
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("build*", "results"))
        command = [sys.executable, "run.py", *["--quick"] * quick, *arguments]
        done = subprocess.run(
            command,
            cwd=copy / name,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    return run

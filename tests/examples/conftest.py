"""Runs an example as its README says: in its quick form, and with --long in full."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from support.processes import printed

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def examples(tmp_path):
    """A copy of all of them, as some build on others."""
    return shutil.copytree(
        EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("build*", "results")
    )


@pytest.fixture
def run_example(examples, build_environment, tmp_path, request):
    """run_example("mlir"): what `python run.py --quick` prints, in the copy, or another script in
    another folder."""
    long = request.config.getoption("--long")

    def run(name, script="run.py", seconds=3600 if long else 280):
        command = [sys.executable, script, *["--quick"] * (not long)]
        done = printed(
            command,
            cwd=examples / name,
            env={**os.environ, **build_environment, "TMPDIR": str(tmp_path)},
            timeout=seconds,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    return run

"""The package, built for the tests that kill at a chosen store."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def steps_build(tmp_path_factory):
    """The package, built to stop before a chosen store."""
    target = tmp_path_factory.mktemp("steps")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        target,
        "--config-settings",
        "cmake.define.SHMB_STEPS=ON",
        "--config-settings",
        "cmake.build-type=Debug",
        ROOT,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target

"""The package, built for the tests that kill at a chosen store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def steps_build(tmp_path_factory, build_environment):
    """The package, built to stop before a chosen store."""
    target = tmp_path_factory.mktemp("steps")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    options = ["--config-settings", "cmake.define.SHMB_STEPS=ON"]
    options += ["--config-settings", "cmake.build-type=None"]
    environment = os.environ | build_environment
    words = [*pip, *options, "--target", target, ROOT]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target

"""A small source that was tuned once."""

import shutil
from pathlib import Path

import pytest
from support.cli import run
from support.stock import SMALL, needs


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A folder with small.c, its plan, and that for plain clang; SMALL is the command."""
    needs("clang-22")
    folder = tmp_path_factory.mktemp("tuned")
    shutil.copy(Path(__file__).with_name("small.c"), folder)
    done = run("tune", "--export", "--results", "r", "-o", "small.plan", "--", *SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(tuned, tmp_path):
    """A copy of its source and plan."""
    for name in "small.c", "small.plan":
        shutil.copy(tuned / name, tmp_path)
    return tmp_path

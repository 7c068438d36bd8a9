"""tests/acceptance, in its quick form."""

import sys
from pathlib import Path

import pytest
from support.processes import printed
from support.stock import needs

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "acceptance"


def test_builds_survive_what_happens_to_their_model(tmp_path):
    needs("clang-22", "cmake", "make", "ninja")
    done = printed([sys.executable, PROGRAM, "--quick"], cwd=tmp_path, timeout=None)
    if "pip" in done.stderr.rpartition("Traceback")[2]:
        pytest.skip("pip cannot download the sdist of zopfli, the program to compile")
    assert done.returncode == 0, done.stdout + done.stderr

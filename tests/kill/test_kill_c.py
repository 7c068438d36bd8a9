"""C hosts and C runners, killed before each of their stores to the segment or at random, or stopped
there: ledger.c knows what becomes of every question. --long: 100 000 kills."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """Built to stop before a chosen store."""
    compilers = [os.environ.get("CC", ""), "cc", "gcc", "clang", "clang-22", "clang-19"]
    compiler = next((name for name in compilers if shutil.which(name)), None)
    if not compiler:
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("ledger") / "ledger"
    flags = ["-std=c11", "-O1", "-pthread", "-D_GNU_SOURCE", "-DSHMB_STEPS"]
    flags += ['-DSHMB_VERSION_TEXT="test"']
    folders = [f"-I{ROOT}/{folder}" for folder in ("cdef/include", "cdef/src", "tests/c")]
    sources = [*sorted(ROOT.glob("tests/kill/*.c")), *sorted(ROOT.glob("cdef/src/**/*.c"))]
    subprocess.run([compiler, *flags, *folders, *sources, "-o", program], check=True)
    return program


@pytest.mark.parametrize(
    ("victim", "how", "kills", "lanes"),
    [
        ("host", "step", 350, 16),
        ("host", "random", 60, 8),
        ("host", "stop", 40, 8),
        ("runner", "step", 250, 8),
        ("runner", "random", 60, 4),
        ("runner", "stop", 40, 8),
        ("retrying", "step", 60, 4),
        ("retrying", "random", 60, 4),
    ],
)
def test_no_question_is_lost_or_answered_twice(ledger, victim, how, kills, lanes, long, record):
    seconds, seed = 120, 1
    if long:  # what takes longer is counted as far as it came
        kills, seconds, lanes, seed = 2000 if how == "stop" else 17000, 240, 64, int(time.time())
    words = [str(word) for word in (ledger, victim, how, kills, seconds, lanes, seed)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert counted["kills"] >= kills or long
    outcomes = [counted[name] for name in ("answered", "default", "error", "open")]
    assert counted["asked"] == sum(outcomes)
    assert victim == "retrying" or not counted["repeated"]
    assert how != "step" or victim == "retrying" or counted["stores"] > 150
    record(f"C {victim} {how}", **counted)

"""Compilers that are shell scripts or Python, a corpus of small sources, and that nothing is left
of them."""

import contextlib
import os
import signal
import sys
import tempfile
import textwrap
import threading
import time

import pytest
from support.compilations import MARK, marked
from support.processes import until

from shmbridge._jobs import supervised
from shmbridge.training import Corpus, Task


@pytest.fixture(autouse=True)
def no_leftovers(monkeypatch, tmp_path_factory):
    """No process, no thread and no work folder outlives its test, whether that closed what it
    opened or not."""
    threads = {*threading.enumerate()}
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = tmp_path_factory.mktemp("tmp")
    monkeypatch.setenv("TMPDIR", str(folder))
    _stop_supervisor()  # the next one has this test's variables
    yield mark
    _stop_supervisor()
    left = marked(mark)
    try:
        until(lambda: not marked(mark))
        until(lambda: {*threading.enumerate()} <= threads)
        others = (".ses", "SB3-")  # PyTorch's, Stable-Baselines3's
        assert [path for path in folder.iterdir() if not path.name.startswith(others)] == []
    finally:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _stop_supervisor():
    supervised._stop()
    supervised._supervisor = None


@pytest.fixture
def corpus(tmp_path):
    """Three modules: a.txt, b.txt, c.txt."""
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"the text of {name}\n")
    return Corpus.from_sources(*(tmp_path / f"{name}.txt" for name in "abc"))


@pytest.fixture
def sh(tmp_path):
    """sh(script, **options): a Task whose compiler is a shell script: $1 is the module, $2 the
    output."""

    def make(script, **options):
        path = tmp_path / f"compiler-{time.monotonic_ns()}"
        path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}\n")
        path.chmod(0o755)
        return Task([path, "{module}", "{output}"], **options)

    return make


ASKS = """
import os, signal, subprocess, sys, time
module, output = sys.argv[1:]
from shmbridge import connect

def ask(times=1):
    with connect() as runner:  # at $SHMBRIDGE_URL
        return [int(runner.evaluate({"x": step}, dtype="int64")) for step in range(times)]
"""


@pytest.fixture
def py(tmp_path):
    """py(code, **options): a Task whose compiler is Python code that may ask(times); `module` and
    `output` are paths."""

    def make(code, **options):
        path = tmp_path / f"compiler-{time.monotonic_ns()}.py"
        path.write_text(ASKS + textwrap.dedent(code))
        uncounted = ["env", "-u", "COVERAGE_PROCESS_CONFIG"]  # which would take most of its time
        return Task([*uncounted, sys.executable, "-P", path, "{module}", "{output}"], **options)

    return make

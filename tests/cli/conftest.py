"""Hosts that `shmbridge serve` starts, and their model; programs that are called like compilers."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cli import MODELS, Serving
from support.run import CONNECT, SHMBRIDGE


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A directory that has models.py."""
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


@pytest.fixture
def name() -> Iterator[str]:
    """A bridge's name; afterwards nothing of it may be left."""
    bridge = f"cli-{os.getpid()}-{time.monotonic_ns()}"
    yield bridge
    assert not Path("/dev/shm", f"shmb.{bridge}").exists()


@pytest.fixture
def serve(where: Path, name: str) -> Iterator[Callable[..., Serving]]:
    """Starts `shmbridge serve` in the directory of models.py; what still runs is ended."""
    started: list[Serving] = []

    def start(*arguments: object) -> Serving:
        started.append(Serving(*arguments, cwd=where))
        return started[-1]

    yield start
    for serving in started:
        if serving.process.poll() is None:
            serving.end()


@pytest.fixture(params=["preload", "pipes"])
def transport(request):
    return {"native": CONNECT, "preload": [], "pipes": ["--pipes"]}[request.param]


@pytest.fixture
def compiler(tmp_path):
    """compiler(script, name="clang"): a shell script of that name."""

    def make(script, name="clang"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def words(transport, tmp_path):
    """words(*command, policy=..., options=()): a run's words, whose policy is that Python code with a function advise."""

    def make(*command, policy="def advise(request): return 0", options=None):
        (tmp_path / "my_policy.py").write_text(textwrap.dedent(policy))
        host = [] if transport == CONNECT else ["--host", "my_policy:advise"]
        chosen = host if options is None else options
        return [SHMBRIDGE, "run", "--llvm", "inline", *chosen, *transport, "--", *map(str, command)]

    return make


@pytest.fixture
def start(words, tmp_path):
    """start(*command, ...): a run under way, with `words`' arguments and Popen's."""
    started = []

    def begin(*command, policy="def advise(request): return 0", options=None, **more):
        more = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            "text": True,
            **more,
        }
        started.append(
            subprocess.Popen(words(*command, policy=policy, options=options), cwd=tmp_path, **more)
        )
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()

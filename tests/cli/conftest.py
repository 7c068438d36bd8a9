"""Hosts that `shmbridge serve` starts, and their model; programs that are called like compilers."""

import os
import shutil
import subprocess
import textwrap
import time
from pathlib import Path

import pytest
from support.cli import MODELS, Serving
from support.run import CONNECT, SHMBRIDGE

PROGRAM = """
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char script[PATH_MAX];
    char *words[argc + 2];
    int n = (int)readlink("/proc/self/exe", script, sizeof script - 4);
    sprintf(script + n, ".sh");
    words[0] = "sh";
    words[1] = script;
    for (int i = 1; i <= argc; i++) words[i + 1] = argv[i];
    execv("/bin/sh", words);
    return 127;
}
"""


@pytest.fixture
def where(tmp_path):
    """A directory that has models.py."""
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


@pytest.fixture
def name():
    """A bridge's name; afterwards nothing of it may be left."""
    bridge = f"cli-{os.getpid()}-{time.monotonic_ns()}"
    yield bridge
    assert not Path("/dev/shm", f"shmb.{bridge}").exists()


@pytest.fixture
def serve(where, name):
    """Starts `shmbridge serve` in the directory of models.py; what still runs is ended."""
    started = []

    def start(*arguments):
        started.append(Serving(*arguments, cwd=where))
        return started[-1]

    yield start
    for serving in started:
        if serving.poll() is None:
            serving.end()


@pytest.fixture(params=["preload", "pipes"])
def transport(request):
    return {"native": CONNECT, "preload": [], "pipes": ["--pipes"]}[request.param]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A dynamically linked program that runs the shell script beside it: PROGRAM runs
    PROGRAM.sh."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", folder / "program.c", "-o", folder / "program"], check=True)
    return folder / "program"


@pytest.fixture
def compiler(program, tmp_path):
    """compiler(script, name="clang"): a program of that name, which does what the shell script
    says."""

    def make(script, name="clang"):
        shutil.copy(program, tmp_path / name)
        (tmp_path / f"{name}.sh").write_text(script)
        return tmp_path / name

    return make


@pytest.fixture(autouse=True)
def no_earlier_failures(tmp_path, monkeypatch):
    """Each test is a build: `shmbridge run` warns once per build."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def words(transport, tmp_path):
    """words(*command, policy=..., options=()): a run's words, whose policy is that Python code with
    a function advise."""

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

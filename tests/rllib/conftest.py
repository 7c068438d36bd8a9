"""Compilers for RLlib, which asks for them in each environment runner: examples/c/environment.c,
eight programs an episode."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
os.environ.update(RAY_worker_niceness="0")  # Ray's own is 15, which is for ever on a busy machine


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Ray puts the current folder on its workers' path: not the checkout, whose shmbridge is not
    built."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def compilers(c_program, tmp_path, new_name):
    """compilers(context, then=""): a CompilerVectorEnv of context["num_envs"]; `then` is what the
    shell does behind the compiler. compilers.name begins the names of its bridges."""
    program, name = c_program(ROOT / "examples" / "c" / "environment.c"), new_name()
    (tmp_path / "module").touch()

    def make(context):  # Ray carries it to other processes, which cannot import this file
        import uuid

        from shmbridge.envs import CompilerVectorEnv
        from shmbridge.training import Corpus, Task, Workers

        then = context.get("then", "")
        task = Task(["sh", "-c", f'{program} "$SHMBRIDGE_URL" 8; {then}', "{module}"])
        workers = Workers(task, Corpus.from_sources(tmp_path / "module").sampler(seed=0))
        url = f"shm://{name}-{uuid.uuid4().hex}"
        options = {key: context[key] for key in ("autoreset_mode",) if key in context}
        return CompilerVectorEnv(
            url, context["num_envs"], actions=4, timeout=60, workers=workers, **options
        )

    make.name = name
    return make


@pytest.fixture
def left(compilers):
    """left(): the compilers that run, and their bridges below /dev/shm."""

    def find():
        asking = f"SHMBRIDGE_URL=shm://{compilers.name}-".encode()
        bridges = {path.name for path in Path("/dev/shm").glob(f"shmb.{compilers.name}-*")}
        running = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if asking in (process / "environ").read_bytes():
                    running.add(int(process.name))
            except OSError:
                pass
        return running - {os.getpid()}, bridges

    return find

"""Relays with a log."""

import contextlib
import signal

import pytest
from support.cli import MODELS, Command

from shmbridge.hosts._relay import Relay
from shmbridge.logs import LogWriter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.log"


@pytest.fixture
def tap(name, new_name, path, in_thread):
    """tap(**options): a tap of the bridge `name`, serving in a thread; its log is at `path`."""
    with contextlib.ExitStack() as stack:

        def start(target=name, **options):
            log = stack.enter_context(LogWriter(path))
            made = Relay(target, new_name(), log=log, **options)
            serving = in_thread(made.serve)
            stack.callback(serving.result)
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def command(tmp_path, name):
    """command(ready, …): starts a command, and waits until it has said `ready`."""
    (tmp_path / "models.py").write_text(MODELS)
    started = []

    def start(ready, *arguments):
        started.append(Command(ready, *arguments, cwd=tmp_path))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.end(signal.SIGTERM)


@pytest.fixture
def serving(command, name):
    """serving("total", …): `shmbridge serve` with that model."""
    return lambda model, *more: command(
        "Python", "serve", name, "--python", f"models:{model}", "--request-bytes", "64K", *more
    )

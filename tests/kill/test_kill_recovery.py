"""Runners with retries, whose hosts are killed before each of their stores and started again: no
evaluate is lost. And such runners killed before each of their own stores: the host has room for the
next.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
from pathlib import Path

import pytest
from test_kill_c import OK, SHM, WAITS, Host, _result, _runner, _seeds, build, name  # noqa: F401

pytestmark = pytest.mark.slow
RETRIES = "retries=100000&backoff=1ms&connect_timeout=10&deadline=inf"
SOME = 40  # of the steps, but with --torture


def _steps(request: pytest.FixtureRequest, steps: int) -> list[int]:
    return random.sample(
        range(1, steps + 1), steps if request.config.getoption("--torture") else min(SOME, steps)
    )


def _dies_first(watch: int, runner: subprocess.Popen[str]) -> bool:
    """Waits for the death of the process behind the pidfd or the runner's end, whichever comes
    first."""
    assert runner.stdout
    poller = select.poll()
    for descriptor in (watch, runner.stdout.fileno()):
        poller.register(descriptor, select.POLLIN)
    ready = dict(poller.poll(20000))
    assert ready, "neither did the host die nor the runner end"
    return watch in ready


def test_a_host_killed_at_each_store_and_started_again_loses_no_evaluate(
    build: Path,  # noqa: F811
    name: str,  # noqa: F811
    request: pytest.FixtureRequest,
) -> None:
    recovered = 0
    for seed in _seeds(request):
        random.seed(seed)
        wait, query = WAITS[seed % 3], f"wait={WAITS[seed // 3 % 3]}&{RETRIES}"
        host = Host(build, name, wait)
        assert host.serving()
        assert _result(_runner(build, name, query))[0] == OK
        steps = host.ask()[1]
        host.end()
        for step in _steps(request, steps):
            host = Host(build, name, wait, step)
            if not host.serving():
                assert host.died()
                continue
            runner = _runner(build, name, query)
            watch = os.pidfd_open(host.process.pid)
            died = _dies_first(watch, runner)
            os.close(watch)
            if not died:  # the store was never made, or is one of closing
                assert _result(runner)[0] == OK
                host.process.kill()
                host.died()
                continue
            assert host.died()
            recovered += 1
            host = Host(build, name, wait)
            assert host.serving()
            assert _result(runner)[0] == OK
            host.end()
        host = Host(build, name, wait)
        assert host.serving()
        host.end()
    assert recovered
    print(f"\n{recovered} hosts killed and started again under a runner")
    # What a host left that died before its segment had its name.
    for path in SHM.glob(f"shmb.{name}*"):
        assert "~" in path.name


def test_a_recovering_runner_killed_at_each_store_makes_room_for_the_next(
    build: Path,  # noqa: F811
    name: str,  # noqa: F811
    request: pytest.FixtureRequest,
) -> None:
    killed = 0
    random.seed(0)
    host = Host(build, name, "block")
    assert host.serving()
    status, _, steps = _result(_runner(build, name, RETRIES))
    assert status == OK
    for step in _steps(request, steps):
        victim = _runner(build, name, RETRIES, step)
        victim.communicate(timeout=30)
        killed += victim.returncode != 0
    assert killed
    assert _result(_runner(build, name, RETRIES))[0] == OK
    host.end()

"""Hosts that share a name, of which runners choose one."""

import contextlib
import os
import struct
from pathlib import Path

import pytest
from support.bridges import shm_path

import shmbridge
from shmbridge import Host
from shmbridge._bridge import overview, segment
from shmbridge._native import lib

WORKERS_AT = 256 + 24  # in the segment: docs/protocol.md


@pytest.fixture
def worker(name):
    """worker(1, count=3): a host that serves; its advice is its number."""
    with contextlib.ExitStack() as stack:

        def start(number, count=2):
            class Worker(Host):
                _worker, _workers = number, count

            host = stack.enter_context(Worker(name, channels=4, request_bytes=1 << 12))
            stack.enter_context(host.start(lambda _: number))
            return host

        yield start


def ask(name, runners=1):
    """The advice that so many runners get, sorted; all are connected at the same time."""
    with contextlib.ExitStack() as stack:
        open_runners = [stack.enter_context(shmbridge.connect(name)) for _ in range(runners)]
        return sorted(int(runner.evaluate({"x": 1})) for runner in open_runners)


def other(name, number):
    return Path(f"{shm_path(name)}~{number}")


def test_runners_are_shared_out_equally(worker, name):
    for number in range(3):
        worker(number, 3)
    assert ask(name, 6) == [0, 0, 1, 1, 2, 2]


def test_a_full_worker_is_passed_over(worker, name):
    worker(0)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(shmbridge.connect(name))
        worker(1)
        assert ask(name, 4) == [1] * 4
        with pytest.raises(shmbridge.BusyError):
            for _ in range(5):
                stack.enter_context(shmbridge.connect(f"{name}?deadline=0.1"))


def test_a_worker_that_accepts_no_runner_gets_one_at_a_time(worker, name):
    class Hangs(Host):  # without a loop
        _worker, _workers = 0, 2

    with Hangs(name, channels=4, request_bytes=1 << 12), shm_path(name).open("r+b") as file:
        worker(1)
        lib.shmb_peer_take(file.fileno(), lib.CHANNEL_BYTE)
        os.pwrite(file.fileno(), struct.pack("<Q", 1 << 8 | 1), 512)  # a runner's claim
        assert ask(name, 3) == [1, 1, 1]


def test_a_wrong_number_of_workers_is_harmless(worker, name):
    for number in (0, 1):
        worker(number)
    with shm_path(name).open("r+b") as file:
        assert os.pread(file.fileno(), 4, WORKERS_AT) == struct.pack("<I", 2)
        os.pwrite(file.fileno(), b"\xff" * 4, WORKERS_AT)
    assert ask(name, 2) == [0, 1]


@pytest.mark.parametrize("what", ["garbage", "directory", "mode", "dead"])
def test_runners_pass_over_what_is_no_live_worker(worker, name, what):
    worker(0)
    if what == "mode":
        worker(1)
        other(name, 1).chmod(0o666)
    elif what == "directory":
        other(name, 1).mkdir()
    else:
        content = shm_path(name).read_bytes() if what == "dead" else b"garbage" * 1000
        other(name, 1).write_bytes(content)
        other(name, 1).chmod(0o600)
    try:
        assert ask(name, 3) == [0, 0, 0]
    finally:
        if what == "directory":
            other(name, 1).rmdir()
        elif what != "mode":
            other(name, 1).unlink()


def test_a_host_alone_has_no_workers(worker, name):
    worker(1).close()  # of an earlier host of the name
    with Host(name) as host, host.start(lambda _: 7):
        assert ask(name, 3) == [7, 7, 7]


def test_workers_end_with_their_files(worker, name):
    hosts = [worker(number) for number in (0, 1)]
    assert [(b.worker, b.alive) for b in overview.bridges(name)] == [(0, True), (1, True)]
    hosts[1].close()
    assert shm_path(name).exists() and not other(name, 1).exists()
    hosts[0].close()
    assert not shm_path(name).exists()
    assert segment.gc(name) == []
    with pytest.raises(shmbridge.NoHostError):
        ask(name)


def test_a_host_alone_is_refused_while_any_worker_lives(worker, name):
    worker(1)
    with pytest.raises(shmbridge.InUseError):
        Host(name)
    worker(0)


def test_a_number_is_taken_once(worker, name):
    worker(1)
    with pytest.raises(shmbridge.InUseError):
        worker(1)
    with pytest.raises(shmbridge.InUseError):
        segment.require_free_name(name)
    segment.require_free_name(name, 0)

"""The second implementation (tests/pure_python) killed before every change that others can see: the
library on the other side has its error, the next one works, and nothing is left in /dev/shm."""

import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from pure_python import api

import shmbridge
from shmbridge import ShmbridgeError

ERROR_WITHIN = 2.0  # seconds from the death to the survivor's error, at most
TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

VICTIMS = """
    import os, pathlib, signal, sys, time
    sys.path.insert(0, sys.argv[1])
    import numpy
    from pure_python import api, segment

    QUESTIONS = [numpy.arange(3), numpy.arange(9), "text", numpy.array(5)]

    def host(name):
        with api.Host(name, channels=2) as host:
            for request in host:
                request.reply(dict(request))
                if int(request["n"]) == len(QUESTIONS):
                    return

    def runner(name):
        with api.connect(name) as runner:
            for question in QUESTIONS:
                runner.evaluate({"x": question})

    def kill_before(step):
        def wrap(module, name):
            function = getattr(module, name)
            def wrapper(*args, **options):
                nonlocal step
                step -= 1
                if not step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)
            setattr(module, name, wrapper)
        for name in ("store", "store64", "write"):
            wrap(segment.Segment, name)
        for name in ("__init__", "post"):
            wrap(segment.Semaphore, name)
        for name in ("lock", "unlock"):
            wrap(segment, name)
        for name in ("open", "close", "posix_fallocate", "pwrite", "link"):
            wrap(os, name)
        wrap(pathlib.Path, "unlink")

    print("warm", flush=True)
    for line in sys.stdin:
        role, step, name = line.split()
        pid = os.fork()
        if not pid:
            try:
                kill_before(int(step))
                {"host": host, "runner": runner}[role](name)
                os._exit(0)
            finally:
                os._exit(1)
        print(flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), time.monotonic(), flush=True)
"""


@pytest.fixture
def deaths(python, name):
    """deaths(role, survive): kills a victim before step 1, 2, ... until it ends; for each the
    survivor's result and when the victim was dead."""
    process = python(VICTIMS, TESTS)
    assert process.line() == "warm"

    def each(role, survive):
        for step in range(1, 1000):
            process.say(f"{role} {step} {name}")
            process.line()
            result = survive()
            status, when = process.line().split()
            yield step, result, float(when)
            if status == "0":
                return
            assert status == str(-signal.SIGKILL), step

    return each


def serving(host, model):
    thread = threading.Thread(target=host.serve, args=(model,))
    thread.start()
    return thread


def ask_the_next(make_host, name):
    with make_host(name) as host:
        thread = serving(host, dict)
        with shmbridge.connect(name, connect_timeout=5) as runner:
            assert runner.evaluate({"x": np.arange(3)}).tolist() == [0, 1, 2]
        host.close()
        thread.join()


def test_a_pure_host_killed_at_any_step(name, deaths, shm_files):
    seen = []

    def survive():
        """Asks until the error: when it came, and its class."""
        try:
            with shmbridge.connect(name, connect_timeout=0.3, deadline=1) as runner:
                n = 0
                while True:
                    runner.evaluate({"n": np.array(n := n + 1)})
        except ShmbridgeError as error:
            return time.monotonic(), type(error).__name__

    for step, (when, error), death in deaths("host", survive):
        seen.append(error)
        assert error in ("NoHostError", "HostGoneError", "ClosedError", "DeadlineError"), step
        assert error != "HostGoneError" or when - death < ERROR_WITHIN, step
        if shm_files():
            ask_the_next(api.Host if step % 2 else shmbridge.Host, name)
        assert not shm_files(), step
    assert seen.count("HostGoneError") > 10 and seen[-1] == "ClosedError"


@pytest.mark.parametrize("make_host", [shmbridge.Host, api.Host])
def test_a_pure_runner_killed_at_any_step(name, deaths, make_host):
    with make_host(name) as host:
        thread = serving(host, dict)
        for step, _, death in deaths("runner", lambda: None):
            with shmbridge.connect(name, connect_timeout=5, deadline=5) as runner:
                assert runner.evaluate({"x": step}) == step
            assert time.monotonic() - death < ERROR_WITHIN, step
        host.close()
        thread.join()
    assert step > 20

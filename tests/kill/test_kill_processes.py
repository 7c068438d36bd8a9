"""Hosts, relays and workers in Python, killed at random or before their stores to the segment while
runners ask: a ledger knows what became of every question. --long: 5 500 kills."""

import contextlib
import itertools
import os
import random
import select
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.processes import alive, until
from support.reliability import spread

from shmbridge import HostGoneError, ShmbridgeError, connect
from shmbridge._bridge import segment

ASKERS, LIMIT = 4, 1 << 26  # questions
LONGEST = 2400  # seconds; what takes longer is counted as far as it came
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Forks what is killed, since a process that imports these modules takes long to start.
VICTIMS = """
    import os, signal, sys
    import numpy
    from shmbridge import Host
    from shmbridge.cli import _workers
    from shmbridge.hosts._relay import Relay
    from shmbridge._jobs.supervisor import LIBC, PR_SET_PDEATHSIG

    _workers.FIRST_PAUSE = 0.0  # before a worker that ended early is replaced
    received = numpy.memmap(sys.argv[1], numpy.uint8)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def advise(request):
        i = int(request["i"])
        received[i] += 1
        assert (request["x"] == i).all()
        return {"advice": i + 1, "x": request["x"]} if i % 4 else i + 1

    def host(name):
        with Host(name, channels=8) as host:
            host.serve(advise)

    def relay(name):
        with Relay(f"{name}-far", name, channels=8) as relay:
            relay.serve()

    def worker(name):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        worker = _workers.become_worker(name, 3, lambda: None)
        with _workers.WorkerHost(worker, name, channels=8) as host:
            worker.answers()
            host.serve(advise)

    print("warm", flush=True)
    for line in sys.stdin:
        role, step, name = line.split()
        pid = os.fork()
        if not pid:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.environ["SHMB_STEP"] = step
            {"host": host, "relay": relay, "worker": worker}[role](name)
            os._exit(1)
        print(pid, flush=True)
"""


class Ledger:
    """Every question has a number; hosts count in a file how often they received it."""

    def __init__(self, path):
        path.touch()
        os.truncate(path, LIMIT)
        self.received = np.memmap(path, np.uint8)
        self.outcomes, self.noticed = Counter(), []
        self._numbers, self._lock = itertools.count(), threading.Lock()

    def ask(self, runner):
        i = next(self._numbers)
        outcome = "error"
        try:
            x = np.full(900 if i % 10 == 9 else i % 40, i)
            assert runner.evaluate({"i": i, "x": x}, dtype=None if i % 4 else "int64") is not None
            advice = runner.advice
            assert advice["advice"] == i + 1 and (not i % 4 or (advice["x"] == x).all())
            assert self.received[i] == 1
            outcome = "answered"
        finally:
            with self._lock:
                self.outcomes[outcome] += 1

    def ask_until(self, name, stop):
        """Asks, connecting again after errors, until stop.is_set(); then when the last error came
        because the host had died."""
        last, noticed = False, None
        while not last:
            last = stop.is_set()
            try:
                with connect(name, connect_timeout=0.05) as runner:
                    while not last:
                        last = stop.is_set()
                        self.ask(runner)
            except HostGoneError:
                noticed = time.monotonic()
            except ShmbridgeError:
                pass
        return noticed

    def close(self):
        """Returns the counts."""
        asked = next(self._numbers)
        assert (self.received[:asked] <= 1).all() and not self.received[asked : asked + 64].any()
        assert asked == sum(self.outcomes.values())
        counts = {"asked": asked, **self.outcomes}
        if self.noticed:
            counts["noticed_ms"] = spread(self.noticed)
        return counts


def wait_for_death(pid):
    """Of a process that need not be our child."""
    with contextlib.suppress(ProcessLookupError), open(os.pidfd_open(pid)) as end:
        assert select.select([end], [], [], 60)[0], "it still lives"


def kill(pid):
    """Whether it still lived."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        wait_for_death(pid)
        return True
    return False


def workers_of(supervisor):
    try:
        return Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    except OSError:
        return []


def wait_for_a_workers_death(supervisor):
    """Or for the supervisor's, which ends if a worker does before all answer."""
    seen = set()

    def one_is_gone():
        now = {*workers_of(supervisor)}
        seen.update(now)
        return seen - now or not alive(supervisor)

    until(one_is_gone, 60)


@pytest.mark.parametrize(
    ("role", "how", "kills"),
    [
        ("host", "random", 1500),
        ("host", "step", 1000),
        ("relay", "random", 750),
        ("relay", "step", 750),
        ("worker", "random", 1000),
        ("worker", "step", 500),
    ],
)
def test_no_question_is_lost_or_answered_twice(
    role, how, kills, name, python, tmp_path, request, shm_files, long, record
):
    if how == "step" and not long:
        pytest.skip("test_kill_python.py kills at steps")
    kills, chance = (kills, random.Random(time.time())) if long else (4, random.Random(1))
    ledger, began, killed = Ledger(tmp_path / "received"), time.monotonic(), 0
    steps = request.getfixturevalue("steps_build") if how == "step" else ""
    victims = python(VICTIMS, tmp_path / "received", env={**os.environ, "PYTHONPATH": str(steps)})
    assert victims.line() == "warm"

    def start(role, step, name):
        victims.say(f"{role} {step} {name}")
        return int(victims.line())

    def answers(before, pid):
        return ledger.outcomes["answered"] > before or not alive(pid)

    others = [start("host", 0, f"{name}-far")] if role == "relay" else []
    victim = 0
    with ThreadPoolExecutor(ASKERS) as pool:
        while killed < kills and time.monotonic() < began + LONGEST:
            if role == "worker" and victim and (how == "step" or chance.random() < 0.1):
                killed += kill(victim)
            # The workers' parent ends by itself if one of them ends before all answer.
            if role != "worker" or not victim or not alive(victim):
                segment.gc()
                victim = start(role, 1 + killed % 400 if how == "step" else 0, name)
            stop = threading.Event()
            askers = [pool.submit(ledger.ask_until, name, stop) for _ in range(ASKERS)]
            try:
                if how == "step":
                    (wait_for_a_workers_death if role == "worker" else wait_for_death)(victim)
                    killed += 1
                else:
                    if chance.random() < 0.8:  # otherwise perhaps while it starts
                        until(partial(answers, ledger.outcomes["answered"], victim), 120)
                    time.sleep(chance.uniform(0, 0.05))
                    workers = workers_of(victim) if role == "worker" else []
                    killed += kill(int(chance.choice(workers)) if workers else victim)
                died = time.monotonic()
            finally:
                stop.set()
            times = [asker.result(60) for asker in askers]
            ledger.noticed += [max(0.0, noticed - died) for noticed in times if noticed]
    for pid in [victim, *others]:
        kill(pid)
    until(lambda: segment.gc() is not None and not shm_files())
    counts = ledger.close()
    assert counts["answered"] and (killed >= kills or long)
    seconds = round(time.monotonic() - began, 1)
    record(f"Python {role} {how}", kills=killed, **counts, seconds=seconds)

"""A Python host and a Python runner killed before every store to the segment, and a host before
every change of files.

The victims run a build that stops before the chosen store (SHMB_STEPS); the survivors run the
ordinary one. A warm process forks the victims. Afterwards the survivor has its error, the next one
works, and nothing is left in /dev/shm.
"""

import os
import signal
import threading
import time
from collections import Counter

import numpy as np
import pytest
from pure_python import api
from support.processes import stat_of, until

from shmbridge import Host, ShmbridgeError, connect
from shmbridge._bridge import segment

WAITS = ["adaptive", "block", "spin"]
# seconds from the death to the survivor's error: half of them, and at most
USUALLY_WITHIN, ERROR_WITHIN = 0.25, 2.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

VICTIMS = """
    import os, pathlib, signal, sys, time
    import numpy, posix_ipc, shmbridge
    from shmbridge._bridge import segment

    QUESTIONS = [
        {"x": numpy.full(3, 7), "n": 0}, {"x": numpy.full(3, 7), "n": 1},
        {"x": numpy.full(30, 7), "n": 2},
        {"x": numpy.full(30, 7), "n": 3, "s": "text"},
        {"x": numpy.full(30, 7), "n": 4, "s": "longer text"},
        {"x": numpy.full(3, 7), "n": 5},
    ]
    ANSWERS = [0, [1, 1], "text", 3.0, {"a": [[1], [2, 3]], "b": list(range(40))}, 5]

    def host(name, wait):
        kept = []
        with shmbridge.Host(name, channels=2, request_bytes=4096, advice_bytes=4096,
            wait=wait) as host:
            for request in host:
                n = int(request["n"])
                kept.append(request["x"])
                advice = ANSWERS[n]
                request.reply(**advice) if isinstance(advice, dict) else request.reply(advice)
                if n == 5:
                    return

    def runner(name, wait):
        patient = {"connect_timeout": 300, "deadline": 300}  # a stopped machine is no failure
        with shmbridge.connect(name, wait=wait, **patient) as runner:
            for question in QUESTIONS:
                runner.evaluate(question)

    def files(name, wait):
        with shmbridge.Host(name, channels=2, wait=wait):
            pass

    def kill_before_file(step):
        count = [0]
        def wrap(function):
            def wrapper(*args, **options):
                count[0] += 1
                if count[0] == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)
            return wrapper
        changes = [(segment, "_create"), (os, "link"), (os, "open"), (os, "close"),
            (pathlib.Path, "unlink"), (posix_ipc, "unlink_shared_memory")]
        for module, function in changes:
            setattr(module, function, wrap(getattr(module, function)))

    print("warm", flush=True)
    for line in sys.stdin:
        role, step, name, wait = line.split()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                if role == "files":
                    kill_before_file(int(step))
                else:
                    os.environ["SHMB_STEP"] = step
                if role == "stopped":
                    os.environ["SHMB_STEP_SIGNAL"] = str(int(signal.SIGSTOP))
                roles = {"host": host, "stopped": host, "runner": runner, "files": files}
                roles[role](name, wait)
                code = 0
            except shmbridge.ShmbridgeError as error:
                print(error, file=sys.stderr)
            finally:
                os._exit(code)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), time.monotonic(), flush=True)
"""


@pytest.fixture
def victims(steps_build, python):
    """victims.start(role, step, name, wait): one; victims.death(): its exit status and when it was
    known to be dead."""

    class Victims:
        process = python(VICTIMS, env={**os.environ, "PYTHONPATH": str(steps_build)})

        def start(self, role, step, name, wait):
            self.process.say(f"{role} {step} {name} {wait}")
            return int(self.process.line())

        def death(self):
            status, when = self.process.line().split()
            return int(status), float(when)

    victims = Victims()
    assert victims.process.line() == "warm"
    return victims


QUESTIONS = [
    {"x": np.full(3, 7), "n": 0},
    {"x": np.full(3, 7), "n": 1},
    {"x": np.full(30, 7), "n": 2},
    {"x": np.full(30, 7), "n": 3, "s": "text"},
    {"x": np.full(30, 7), "n": 4, "s": "longer text"},
    {"x": np.full(3, 7), "n": 5},
]


def survive_in_python(name, connect=connect):
    """Asks until the error; when it came, and its class's name."""
    try:
        with connect(name, connect_timeout=0.3) as runner:
            for question in QUESTIONS:
                runner.evaluate(question)
            while True:  # the host closes, or dies while it does
                runner.evaluate(QUESTIONS[5])
    except ShmbridgeError as error:
        return time.monotonic(), type(error).__name__


def survive_in_c(runner, name):
    """The same by a C runner, which asks for one kind of advice only."""
    runner.do("wait", 0.3)
    answer = runner.do("open", name)
    n = 0
    while answer.startswith("0"):
        runner.do("feature", "x", 5, 1, 3, bytes(24).hex())
        runner.do("feature", "n", 5, 0, (min(n, 5)).to_bytes(8, "little").hex())
        answer, n = runner.do("evaluate", 0), n + 1
    errors = {3: "NoHostError", 9: "HostGoneError", 11: "ClosedError", 12: "DeadlineError"}
    return time.monotonic(), errors.get(int(answer.split()[0]), answer)


def ask_the_next_host(name):
    """Takes the name over, and is asked."""
    with Host(name, channels=2) as host, host.start(dict), connect(name) as runner:
        assert runner.evaluate({"x": [1, 2]}).tolist() == [1, 2]


def test_a_host_killed_at_any_step(name, victims, c_runner, shm_files, long):
    c, steps, seen, noticed = c_runner(), 0, Counter(), []
    stride = 1 if long else 5  # which goes through all combinations of what follows
    for seed in range(50 if long else 1):
        step = finished = 0
        while finished < 3:
            step += stride
            wait = WAITS[(step + seed) % 3]
            victims.start("host", step, name, wait)
            if (step + seed) % 2:
                when, error = survive_in_c(c, name)
            else:
                second = (step + seed) % 4 == 0
                when, error = survive_in_python(name, api.connect if second else connect)
            status, death = victims.death()
            assert status in (0, -signal.SIGKILL)
            finished = finished + 1 if status == 0 else 0
            assert error in ("HostGoneError", "ClosedError", "NoHostError", "DeadlineError"), error
            if error == "HostGoneError":
                noticed.append(when - death)
            seen[error] += 1
            if (step + seed) % 3:
                ask_the_next_host(name)
            else:
                segment.gc()
            assert not shm_files(), f"step {step}"
        steps = max(steps, step - 3 * stride)
    assert steps > 20 and seen["HostGoneError"] > 10
    assert np.median(noticed) < USUALLY_WITHIN and max(noticed) < ERROR_WITHIN


def ask_all(name):
    """Returns once each question has been answered."""
    with connect(name, connect_timeout=60, deadline=60) as runner:
        for question in QUESTIONS:
            assert runner.evaluate(question) is not None


def test_a_host_stopped_at_any_step_answers_later(name, victims, in_thread, long, record):
    step, stops, stopped, began = 0, 0, True, time.monotonic()
    while stopped:
        step += 1 if long else 40
        pid = victims.start("stopped", step, name, WAITS[step % 3])
        asking = in_thread(ask_all, name)
        until(lambda: stat_of(pid)[:1] in (["T"], ["Z"], []), 60)  # noqa: B023
        stopped = stat_of(pid)[:1] == ["T"]
        if stopped:
            time.sleep(0.05)
            os.kill(pid, signal.SIGCONT)
            stops += 1
        asking.result()
        assert victims.death()[0] == 0
    assert stops > 1
    asked = (stops + 1) * len(QUESTIONS)
    seconds = round(time.monotonic() - began, 1)
    record("Python host stop", kills=stops, asked=asked, answered=asked, seconds=seconds)


def pure_host(name, wait, **options):
    """Of the second implementation."""
    return api.Host(name, **options)


@pytest.mark.parametrize(("host", "make_host"), [("Python", Host), ("second", pure_host)])
def test_a_runner_killed_at_any_step(name, victims, long, host, make_host, record):
    """Its channel, the only one, is the next runner's; arrays that the host kept stay as they
    were. The host receives each question at most once."""
    steps, kept, received, counts, began = 0, [], [], Counter(), time.monotonic()

    def model(request):
        assert (request["x"] == 7).all()
        received.append(int(request["n"]))
        kept.append(request["x"])
        if len(kept) > 3:
            del kept[0]
        return np.arange(request["n"] * 10)

    for seed in range(20 if long else 1):
        with make_host(name, channels=1, slots=4, wait=WAITS[seed % 3]) as server:
            thread = threading.Thread(target=server.serve, args=(model,))
            thread.start()
            step = finished = 0
            while finished < 3:
                step += 1
                victims.start("runner", step, name, WAITS[(step + seed) % 3])
                status, _ = victims.death()
                assert status in (0, -signal.SIGKILL)
                finished = finished + 1 if status == 0 else 0
                with connect(name, connect_timeout=300, deadline=300) as runner:
                    assert runner.evaluate({"x": np.full(5, 7), "n": 1}).tolist() == list(range(10))
                *of_the_victim, of_the_next = received
                assert of_the_victim == [*range(len(of_the_victim))] and of_the_next == 1
                assert status or len(of_the_victim) == len(QUESTIONS)
                counts["asked"] += len(received)
                counts["kills"] += status != 0
                counts["open"] += len(of_the_victim) if status else 0
                received.clear()
                assert all((x == 7).all() for x in kept)
            steps = max(steps, step - 3)
            server.close()
            thread.join()
    assert steps > 20
    answered, seconds = counts["asked"] - counts["open"], round(time.monotonic() - began, 1)
    kind = "runner" if host == "Python" else "runner (second host)"
    record(f"Python {kind} step", **counts, answered=answered, seconds=seconds)


@pytest.mark.parametrize("after", ["nothing", "a dead host"])
def test_a_host_killed_before_any_change_of_files(name, victims, shm_files, after):
    step = finished = 0
    while not finished:
        step += 1
        if after == "a dead host":
            victims.start("host", 3, name, "block")
            assert victims.death()[0] == -signal.SIGKILL and shm_files()
        victims.start("files", step, name, "block")
        status, _ = victims.death()
        assert status in (0, -signal.SIGKILL)
        finished = status == 0
        if step % 2:
            ask_the_next_host(name)
        segment.gc()
        assert not shm_files(), f"step {step}"
    assert step > 5


def test_a_stopped_runner_is_no_dead_one_and_holds_nobody_up(name, python, serve):
    asker = """
        import sys, shmbridge
        with shmbridge.connect(sys.argv[1]) as runner:
            print(runner.evaluate({"x": 1}), flush=True)
            sys.stdin.readline()
            print(runner.evaluate({"x": 2}), flush=True)
    """
    with serve(lambda request: request["x"]) as host:
        stopped = python(asker, name)
        assert stopped.line() == "1"
        stopped.send_signal(signal.SIGSTOP)
        stopped.say()
        until = time.monotonic() + 1
        with connect(name) as runner:
            while time.monotonic() < until:
                assert runner.evaluate({"x": 5}) == 5
            assert host.runners == 2
        stopped.send_signal(signal.SIGCONT)
        assert stopped.end() == (0, "2")

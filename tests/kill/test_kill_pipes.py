"""Runners and hosts at pipe:// killed at each step of a conversation: the other side has its error
at once, the next one its own answer, and nothing is left. --long: 220 kills.
"""

import contextlib
import fcntl
import os
import termios
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.reliability import spread

from shmbridge import Host, HostGoneError, NoHostError, ShmbridgeError, connect
from shmbridge._bridge import segment

PATIENCE = 150.0  # seconds, of a machine that is loaded, or stopped for a while
LARGE = 500_000  # bytes: more than a pipe holds
ROUNDS = 20  # through the steps, with --long
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def url(tmp_path):
    yield f"pipe://{tmp_path}/p?serdes=flatbuffers"
    segment.gc()


def since(began):
    return round(time.monotonic() - began, 1)


# ---- Runners die ----

RUNNER = """
    import os, sys, threading
    import numpy, shmbridge
    url, step = sys.argv[1:]
    path = url[7:].partition("?")[0]
    if step == "half open":  # as the C core opens them
        end = os.open(path + ".in", os.O_RDONLY | os.O_NONBLOCK)
        print("there", flush=True)
        input()
    runner = shmbridge.connect(url)
    if step == "in its frame":  # the host is not reading
        threading.Timer(0.1, lambda: print("there", flush=True)).start()
        runner.evaluate({"x": numpy.zeros(int(5e5), numpy.uint8)})
    if step == "asking":
        print("there", flush=True)
        runner.evaluate({"x": -1})
    if step == "answered":
        runner.evaluate({"x": 1})
    print("there", flush=True)
    input()
"""
STEPS = ["half open", "open", "in its frame", "asking", "answered"]


class Serving(threading.Thread):
    """A host's loop: x + 1; a question of -1 waits for .let_go, a long one is its size."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self.host, self.asked, self.let_go, self.late = (
            host,
            threading.Event(),
            threading.Event(),
            [],
        )
        self.reads = threading.Event()
        self.start()

    def run(self):
        with contextlib.suppress(ShmbridgeError):
            while self.reads.wait(PATIENCE):
                for request in self.host:
                    x = request["x"]
                    if x.size > 1:
                        request.reply(x.size)
                        continue
                    if x == -1:
                        self.asked.set()
                        assert self.let_go.wait(PATIENCE)
                    request.reply(int(x) + 1)
                return


def test_a_runner_killed_at_each_step_makes_room_for_the_next(url, python, long, record):
    counts, began = Counter(), time.monotonic()
    for step in STEPS * (ROUNDS if long else 1):
        counts += kill_a_runner(url, python, step)
    record("Python runner of pipes step", **counts, seconds=since(began))


def kill_a_runner(url, python, step):
    """What became of the questions."""
    with Host(url) as host:
        serving = Serving(host)
        if step != "in its frame":
            serving.reads.set()
        victim = python(RUNNER, url, step)
        assert victim.line() == "there"
        if step == "asking":
            assert serving.asked.wait(PATIENCE)
        victim.kill()
        victim.wait()
        began = time.monotonic()
        # The next one is there before.
        threading.Timer(0.05, lambda: (serving.let_go.set(), serving.reads.set())).start()
        with connect(url, deadline=PATIENCE) as runner:
            for i in range(3):
                assert runner.evaluate({"x": 10 * i}) == 10 * i + 1
        assert time.monotonic() - began < PATIENCE, step
        host.close()
        serving.join(PATIENCE)
        assert not serving.is_alive()
    victims = step in ("in its frame", "asking", "answered")
    return Counter(kills=1, asked=3 + victims, answered=3, open=int(victims))


def _path(url, end):
    return Path(f"{url[7:].partition('?')[0]}.{end}")


def _until_full(path):
    """Until a pipe that nobody reads takes no more."""
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        room, until = fcntl.fcntl(end, fcntl.F_GETPIPE_SZ), time.monotonic() + PATIENCE
        while int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), "little") < room:
            assert time.monotonic() < until
            time.sleep(0.001)
    finally:
        os.close(end)


# ---- Hosts die ----

HOST_STEPS = ["half made", "before it reads", "idle", "asked", "answered", "in a frame"]

HOST = """
    import os, sys, time
    import shmbridge
    url, step = sys.argv[1:]
    path = url[7:].partition("?")[0]
    if step == "half made":
        os.mkfifo(path + ".in", 0o600)
        print("there", flush=True)
        input()
    host = shmbridge.Host(url)
    print("there", flush=True)
    if step == "before it reads":
        input()
    for request in host:
        if request["x"].size == 1 and request["x"] == -1:
            print("asked", flush=True)
            time.sleep(100)
        if request["x"].size > 1:
            os.kill(os.getpid(), 9) if step == "in the reply" else request.reply(0)
        request.reply(int(request["x"]) + 1)
"""


def test_a_host_killed_at_each_step_is_gone_at_once_and_the_next_takes_over(
    url, python, long, record
):
    counts, noticed, began = Counter(), [], time.monotonic()
    for step in HOST_STEPS * (ROUNDS if long else 1):
        counts += kill_a_host(url, python, step, noticed)
    times = spread(noticed)
    record("Python host of pipes step", **counts, noticed_ms=times, seconds=since(began))


def kill_a_host(url, python, step, noticed):
    """What became of the questions. Adds to `noticed` the time until a waiting runner's error."""
    victim = python(HOST, url, step)
    assert victim.line() == "there"
    ask = asker(url) if step != "half made" else None
    outcome = []
    if ask and step == "answered":
        assert ask(1) == 2
    asking = None
    if step in ("before it reads", "asked", "in a frame"):
        asking = threading.Thread(
            target=lambda: outcome.extend(
                (ask(None if step == "in a frame" else -1), time.monotonic())
            ),
            daemon=True,
        )
        if step == "in a frame":
            os.kill(victim.pid, 19)  # it reads no more
        asking.start()
        if step == "asked":
            assert victim.line() == "asked"
        if step == "in a frame":
            _until_full(_path(url, "out"))
    killed = time.monotonic()
    victim.kill()
    victim.wait()
    if asking:
        asking.join(PATIENCE)
        assert outcome[0] == "gone", step
        noticed.append(outcome[1] - killed)
    elif ask:
        assert ask(5) == "gone", step
    if ask:
        ask(None, close=True)
    with pytest.raises(NoHostError):
        connect(url, connect_timeout=0.01)
    with Host(url) as host:
        serving = Serving(host)
        serving.reads.set()
        ask = asker(url)
        assert ask(1) == 2
        ask(None, close=True)
        host.close()
        serving.join(PATIENCE)
    assert not _path(url, "in").exists() and not _path(url, "out").exists()
    answered, errors = 1 + (step == "answered"), int(step != "half made")
    return Counter(kills=1, asked=answered + errors, answered=answered, error=errors)


def asker(url):
    """ask(x): the answer, or "gone"; None asks a long question."""
    runner = connect(url)

    def ask(x, close=False):
        if close:
            return runner.close()
        try:
            return runner.evaluate({"x": np.zeros(LARGE, np.uint8) if x is None else x})
        except HostGoneError:
            return "gone"

    return ask

"""Retries, backoff and default advice: the same words and the same outcomes in C++, Python and
URLs."""

import math
import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from shmbridge import (
    ClosedError,
    Host,
    HostGoneError,
    InvalidError,
    ModelError,
    NoHostError,
    ShmbridgeError,
    connect,
)
from shmbridge.runners import RunnerKind, _register

CROSS = Path(__file__).parents[1] / "cross"
pytestmark = pytest.mark.timeout(120)  # instead of timing: what ought to end ends
NO_HOST, MODEL, INVALID, INEXACT = "E3", "E17", "E1", "E16"


# ---- One table for all ----


class Hosts:
    """Hosts of one name, one after another: x + 1, a ValueError for x = 2. Those that end close
    when they are asked 1."""

    def __init__(self, name, plan, in_thread):
        self.name, self.plan, self.ended = name, list(plan), False
        self.next_host()
        self.serving = in_thread(self.run)

    def next_host(self):
        self.ends = self.plan.pop(0) == "ends"
        self.host = Host(self.name)

    def run(self):
        while True:
            self.host.serve(self.model)
            if self.ended or not self.plan:
                return
            self.next_host()

    def model(self, request):
        x = int(request["x"])
        if x == 1 and self.ends:
            self.host.close()
        elif x == 2:
            raise ValueError("two is too many")
        return x + 1

    def end(self):
        self.ended = True
        self.host.close()
        self.serving.result()


NOBODY, ENDS, RESTARTS = (), ("ends",), ("ends", "steady")
TABLE = [
    # hosts, retries, backoff, default: status of open, three results, defaulted
    (NOBODY, 2, 0.001, None, f"{NO_HOST} {NO_HOST} {NO_HOST} {NO_HOST} 0"),
    (NOBODY, 0, 0, "0.5", f"0 {INEXACT} {INEXACT} {INEXACT} 0"),
    (ENDS, 1, 0.001, "9", "0 1 9 9 2"),
    (RESTARTS, 1000, 0.001, "9", "0 1 2 9 1"),
    (RESTARTS, 1000, 0.001, None, f"0 1 2 {MODEL} 0"),
    (NOBODY, -1, 0, None, f"{INVALID} {INVALID} {INVALID} {INVALID} 0"),
]


def in_python(url, retries, backoff, default):
    number = None if default is None else float(default) if "." in default else int(default)
    found = []
    try:
        runner = connect(url, retries=retries, backoff=backoff, default_advice=number)
    except ShmbridgeError as error:
        return " ".join([f"E{error.status}"] * 4 + ["0"])
    with runner:
        for x in range(3):
            try:
                found.append(str(runner.evaluate({"x": x}, dtype=np.int64)))
            except ShmbridgeError as error:
                found.append(f"E{error.status}")
        return " ".join(["0", *found, str(runner.defaulted)])


@pytest.fixture(scope="session")
def recovering(c_program):
    return c_program(CROSS / "recovering_runner.cpp")


# All of it in Python; what passes the options on in other ways has two rows, with all of them.
WAYS = [("python", *row) for row in TABLE]
WAYS += [(way, *row) for way in ("c++", "url") for row in TABLE if row[0] == RESTARTS]


@pytest.mark.parametrize(("way", "plan", "retries", "backoff", "default", "expected"), WAYS)
def test_one_table_in_every_language(
    name, in_thread, recovering, way, plan, retries, backoff, default, expected
):
    hosts = Hosts(name, plan, in_thread) if plan else None
    url = f"{name}?connect_timeout={10 if plan else 0}"
    if way == "python":
        found = in_python(url, retries, backoff, default)
    else:
        options = [str(retries), str(backoff), default or "-"]
        if way == "url":
            url += f"&retries={retries}&backoff={backoff}" + (
                f"&default_advice={default}" if default else ""
            )
            options = ["0", "0", "-"]
        command = [recovering, url, *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        found = done.stdout.strip()
    if hosts:
        hosts.end()
    assert found == expected


# ---- Python's own ----


def test_the_default_is_said_to_a_log_and_counted_with_its_reason(name, capfd):
    said = []
    with connect(name, default_advice=3, log=said.append) as runner:
        assert runner.stats == (0, {}, 0, 0, 0.0)
        assert [runner.evaluate({}) for _ in range(3)] == [3, 3, 3]
        assert runner.stats == (3, {NoHostError: 3}, 0, 3, 0.0)
        assert runner.expected() is None
    assert runner.stats.questions == 0
    assert len(said) == 1 and said[0].endswith(
        ": continuing with the default advice 3 (counted; reported once)"
    )
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.5, 1e-7, 1e16, 2**64 - 1, True, np.int8(-3), np.float32(0.1), np.uint64(2**63)],
)
def test_numbers_that_may_be_defaults(name, value):
    with connect(name, default_advice=value) as runner:
        found = runner.evaluate({})
        assert found == value
        assert isinstance(found, float if isinstance(value, (float, np.floating)) else int)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**64, -(2**63) - 1, "1", 1j, [1], np.ones(2)]
)
def test_what_may_be_no_default(name, value):
    with pytest.raises(InvalidError, match="default_advice"):
        connect(name, default_advice=value)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"retries": 2**31},
        *(
            {time: bad}
            for time in ("connect_timeout", "deadline", "backoff")
            for bad in (-1, -1e-9, -math.inf, math.nan)
        ),
    ],
)
def test_options_that_make_no_sense(name, options):
    with pytest.raises(InvalidError, match=next(iter(options))):
        connect(name, **options)


def test_a_default_waits_for_a_host_as_long_as_it_may(name, serve, in_thread):
    connecting = in_thread(lambda: connect(name, connect_timeout=60, default_advice=-1))
    with serve(lambda request: 5), connecting.result() as runner:
        assert runner.evaluate({"x": 1}) == 5 and runner.defaulted == 0


def test_the_environments_url_has_the_same_words(name, monkeypatch):
    monkeypatch.setenv(
        "SHMBRIDGE_URL", f"{name}?connect_timeout=0&retries=1&backoff=1ms&default_advice=2.5"
    )
    with connect() as runner:
        assert runner.evaluate({"x": 1}) == 2.5
    with connect(default_advice=7, retries=0) as runner:  # and what it says wins
        assert runner.evaluate({"x": 1}) == 2.5


def test_ctrl_c_ends_a_pause_and_the_runner_goes_on(name, in_thread):
    host = Host(name)
    serving = in_thread(host.serve, lambda request: 1)
    with connect(name, retries=3, backoff=1000, deadline=math.inf, default_advice=0) as runner:
        assert runner.evaluate({"x": 1}) == 1
        host.close()
        serving.result()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            runner.evaluate({"x": 1})
        assert runner.defaulted == 0
        with Host(name) as host:
            serving = in_thread(host.serve, lambda request: 2)
            assert runner.evaluate({"x": 1}) == 2
            host.close()
            serving.result()


def test_closing_ends_a_pause(name, in_thread):
    host = Host(name)
    serving = in_thread(host.serve, lambda request: 1)
    runner = connect(name, retries=3, backoff=1000, deadline=math.inf)
    host.close()
    serving.result()
    asking = in_thread(runner.evaluate, {"x": 1})
    threading.Timer(0.2, runner.close).start()
    with pytest.raises(ClosedError):
        asking.result()


class Flaky(RunnerKind):
    """Fails as `plan` says, by question, over all that were opened."""

    plan: list[BaseException | None] = []
    opened: list[bool] = []  # is it closed?

    def __init__(self, where, **options):
        if where == "nowhere":
            raise NoHostError("nobody is there")
        self.number = len(self.opened)
        self.opened.append(False)

    def evaluate(self, features, want, deadline):
        failure = self.plan.pop(0) if self.plan else None
        if failure:
            raise failure
        return int(features["x"]) + 1

    def close(self):
        self.opened[self.number] = True


@pytest.fixture(scope="module")
def flaky():
    _register.register("flaky", Flaky)
    return Flaky


@pytest.fixture
def opened(flaky):
    flaky.opened, flaky.plan = [], []
    return flaky.opened


def test_a_python_runner_kind_is_opened_anew(flaky, opened):
    flaky.plan = [HostGoneError("gone"), None, NoHostError("away"), ClosedError("shut"), None]
    flaky.plan.append(ModelError("wrong"))
    with connect("flaky://x", retries=2, backoff=1e-3) as runner:
        assert [runner.evaluate({"x": x}) for x in (1, 2)] == [2, 3]
        assert opened == [True, True, True, False]
        with pytest.raises(ModelError, match="wrong"):
            runner.evaluate({"x": 3})
        assert opened == [True, True, True, False]
    assert opened == [True] * 4


def test_ctrl_c_within_a_python_runner_kind_is_no_reason_to_retry(flaky, opened):
    flaky.plan = [KeyboardInterrupt()]
    with connect("flaky://x", retries=2, backoff=1e-3, default_advice=0) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.evaluate({"x": 1})
        assert runner.evaluate({"x": 1}) == 2 and opened == [False]


def test_a_python_runner_kind_that_does_not_open_gives_the_default(flaky, opened):
    with connect("flaky://nowhere", retries=1, backoff=1e-3, default_advice=4) as runner:
        assert runner.evaluate({"x": 1}) == 4 and runner.defaulted == 1
    with pytest.raises(NoHostError, match="nobody is there"):
        connect("flaky://nowhere", retries=1)

"""shmbridge inspect: what each compiler sends, gets and waits for."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from support.cli import refused, run
from support.processes import until

from shmbridge import ClosedError, Host, Ragged, connect

FEATURES = {
    "x": np.zeros((2, 3), np.float32),
    "n": 7,
    "who": "main",
    "names": ["a", "bc"],
    "edges": Ragged(np.arange(5), [0, 2, 5]),
}

HOST = (
    "import sys, shmbridge\nwith shmbridge.Host(sys.argv[1]) as host:\n"
    "    print('made', flush=True)\n    host.serve(lambda request: 0)\n"
)


def inspected(name):
    return json.loads(run("inspect", name, "--json").stdout)


def waits(name):
    """For how many seconds the first compiler has waited; 0: it does not."""
    channel = inspected(name)["channels"][0]
    return channel["waits"] and channel["since"]


@pytest.fixture
def connected(in_thread):
    """connected(host, url): a runner that connects while this thread receives."""

    def go(host, url):
        call = in_thread(connect, url)
        while call.is_alive():
            host.receive(timeout=0.01)
        return call.result()

    return go


@pytest.fixture
def asking(name, connected):
    with Host(name) as host, connected(host, f"shm://{name}?label=src/a.c&deadline=60") as runner:
        yield host, runner


def test_it_shows_names_dtypes_and_sizes_of_what_is_sent_and_got(asking, name, in_thread):
    host, runner = asking
    thread = in_thread(runner.evaluate, FEATURES)
    request = host.receive()
    request.reply(action=np.int64(3), scores=np.ones(4, np.float16))
    thread.join()
    said = run("inspect", name).stdout
    sends = (
        "x: float32[2, 3], n: int64, who: string of 4 bytes, names: 2 strings, edges: 2 rows of "
        "int64, 5 values"
    )
    assert f"sends {sends}" in said and "gets  action: int64, scores: float16[4]" in said
    assert "src/a.c" in said and "1 replies" in said and f"process {os.getpid()}" in said


def test_sizes_are_those_of_the_compilers_last_message(asking, name, in_thread, connected):
    host, runner = asking
    for size in (1, 5, 3):
        thread = in_thread(runner.evaluate, {"x": np.zeros(size)})
        host.receive().reply(np.zeros(size + 1))
        thread.join()
    (channel,) = inspected(name)["channels"]
    assert channel["sends"][0]["shape"] == [3] and channel["gets"][0]["shape"] == [4]
    runner.close()
    with connected(host, name):
        (channel,) = inspected(name)["channels"]
        assert channel["sends"] is None and channel["gets"] is None and channel["label"] == ""


def test_before_the_first_question_nothing_is_shown(asking, name):
    host, _ = asking
    host.receive(timeout=0)
    said = run("inspect", name).stdout
    assert "sends nothing yet" in said and "gets  nothing yet" in said and "it is computing" in said


def test_a_compiler_that_waits_for_the_model_is_shown_with_the_time(asking, name, in_thread):
    host, runner = asking
    thread = in_thread(runner.evaluate, {"x": 1})
    request = host.receive()
    until(lambda: 0.2 < waits(name) < 30)
    said = run("inspect", name).stdout
    assert re.search(
        r"it is waiting for a reply, for \d+\.\d s: the host's model is computing", said
    )
    request.reply(1)
    thread.join()
    assert not waits(name)


def test_a_loop_that_does_not_run_is_named_as_the_cause(asking, name, in_thread):
    host, runner = asking
    first = in_thread(runner.evaluate, {"x": 1})
    for request in host:
        request.reply(1)
        break
    first.join()
    thread = in_thread(runner.evaluate, {"x": 1})
    until(lambda: waits(name))
    said = run("inspect", name).stdout
    assert re.search(
        r"it is waiting for a reply, for \d+\.\d s: the host's loop is not running", said
    )
    host.receive().reply(1)
    thread.join()


def test_a_stopped_host_is_named_as_the_cause(name, python, in_thread):
    host = python(HOST, name)
    assert host.line() == "made"
    with connect(name) as runner:
        runner.evaluate({"x": 1})
        os.kill(host.pid, signal.SIGSTOP)
        thread = in_thread(runner.evaluate, {"x": 1})
        until(lambda: waits(name))
        said = run("inspect", name).stdout
        os.kill(host.pid, signal.SIGCONT)
        thread.join()
    assert f"the host is stopped (kill -CONT {host.pid}" in said
    host.terminate()
    host.wait(20)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")
@pytest.mark.parametrize("space", ["--pid", "--time --boottime 9000000 --monotonic 9000000"])
def test_a_host_in_another_namespace_is_not_taken_for_a_process_of_this_one(space, name):
    python = (sys.executable, "-P", "-c", HOST, name)
    command = ["unshare", "--fork", "--kill-child", *space.split(), *python]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as host:
        assert host.stdout.readline() == b"made\n"
        said = run("inspect", name).stdout
        shown = json.loads(run("inspect", name, "--json").stdout)
        host.kill()
    run("gc", name)
    assert "which is not visible here" in said and "computing" not in said.splitlines()[0]
    assert shown["since"] == 0


def test_a_name_that_is_not_utf8_is_shown(name, python):
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'a\\xff)\\n b')\n"
    host = python(rename + HOST, name)
    assert host.line() == "made"
    assert "it is waiting for questions" in run("inspect", name).stdout
    host.terminate()
    host.wait(20)


def test_a_model_that_computes_for_a_compiler_that_has_left_is_shown(name, in_thread):
    asked, go = threading.Event(), threading.Event()

    def model(request):
        asked.set()
        return int(go.wait(60))

    with Host(name) as host, host.start(model), connect(name) as runner:
        asking = in_thread(runner.evaluate, {"x": 1})
        asked.wait(30)
        runner.close()
        with pytest.raises(ClosedError):
            asking.result()
        parts = "it is computing an answer", "no compiler is connected"
        until(lambda: all(map(run("inspect", name).stdout.__contains__, parts)))
        go.set()


def test_a_host_that_is_idle_for_a_while_is_shown_to_wait_for_questions(asking, name):
    host, runner = asking
    with host.start(lambda request: 1):
        runner.evaluate({"x": 1})
        time.sleep(1.2)
        assert "it is waiting for questions" in run("inspect", name).stdout


def test_a_compiler_that_the_host_has_not_accepted_is_shown(name, in_thread):
    with Host(name) as host:
        call = in_thread(connect, f"{name}?connect_timeout=60")
        until(lambda: "waiting for the host to accept it" in run("inspect", name).stdout)
        while call.is_alive():
            host.receive(timeout=0.01)
        call.result().close()


def test_control_characters_of_a_compiler_are_shown_as_escapes(name):
    with (
        Host(name) as host,
        host.start(lambda request: 0),
        connect(name, label="a.c\x1b[31m\nchannel 1") as runner,
    ):
        runner.evaluate({"x\x1b[2J": 1})
        said = run("inspect", name).stdout
    assert r", a.c\x1b[31m\nchannel 1" in said and r"x\x1b[2J: int64" in said


def test_a_bridge_that_is_not_there_is_an_error(name):
    assert f"no host is named {name}, or it has another" in refused(1, "inspect", name)


def test_inspect_without_a_name_shows_every_bridge(name):
    with Host(f"{name}-a"), Host(f"{name}-b"):
        shown = run("inspect").stdout
        named = [json.loads(line)["name"] for line in run("inspect", "--json").stdout.splitlines()]
    assert [f"shm://{name}-{end}: host process" in shown for end in "ab"] == [True, True]
    assert {f"{name}-a", f"{name}-b"} <= set(named)

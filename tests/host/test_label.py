"""A runner says what it is about, and the host hears it with each request."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import until

from shmbridge import Host, connect
from shmbridge._native import ffi

ASKS = """
    import sys, shmbridge
    with shmbridge.connect(sys.argv[1], label=sys.argv[2], connect_timeout=5) as runner:
        runner.evaluate({"x": 1})
"""


def heard(host):
    """Label and process of the one request that comes."""
    request = host.receive()
    said = request.label, request.pid
    request.reply(0)
    return said


@pytest.mark.parametrize(
    "query, label, said",
    [("", "src/a.c", "src/a.c"), ("", "", ""), ("?label=b.c", "a.c", "b.c")],
    ids=["label and process", "none", "the URL's wins"],
)
def test_label_and_process_come_with_the_request(name, python, query, label, said):
    with Host(name) as host:
        runner = python(ASKS, f"shm://{name}{query}", label)
        assert heard(host) == (said, runner.pid)
        assert runner.end()[0] == 0


def test_the_next_runner_of_a_channel_has_its_own_label(name, python):
    with Host(name, channels=1) as host:
        for label in ("a.c", "b.c"):
            runner = python(ASKS, name, label)
            assert heard(host) == (label, runner.pid)
            runner.end()


def test_each_runner_has_a_number_which_its_requests_share(name, in_thread):
    asking = in_thread(lambda: [ask(f"shm://{name}", "a.c", times=2) for _ in range(2)])
    with Host(name, channels=1) as host:
        numbers = [request.runner for request in islice(answered(host), 4)]
        asking.result()
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


def test_a_runner_with_retries_keeps_its_label_over_connections(name, python):
    asks_twice = ASKS.replace('evaluate({"x": 1})', 'evaluate({"x": 1}); runner.evaluate({"x": 2})')
    with Host(name) as host:
        python(asks_twice, f"shm://{name}?retries=20&label=a.c", "")
        assert heard(host)[0] == "a.c"
    with Host(name) as host:
        assert heard(host)[0] == "a.c"


def test_the_label_stays_readable_behind_the_reply(name, python):
    with Host(name) as host:
        python(ASKS, name, "a.c")
        request = host.receive()
        request.reply(0)
        assert request.label == "a.c"


def test_a_host_knows_which_runner_it_keeps_waiting(name, python):
    last = ffi.new("shmb_delay *")
    with Host(name) as host:
        runner = python(ASKS.replace("runner.ev", "sys.stdin.readline(); runner.ev"), name, "a.c")
        until(lambda: host._delays(b"a.c", last))  # to be accepted
        until(lambda: host.receive(0) is None and host.runners)
        assert not host._delays(b"a.c", last)
        runner.say()
        until(lambda: host._delays(b"a.c", last))  # to be heard
        request = host.receive()
        for _ in range(2):  # just after a receive, and later
            assert host._delays(b"a.c", last) and not host._delays(b"b.c", last)
        request.reply(0)
        assert not host._delays(b"a.c", last)


def test_other_schemes_take_a_label_and_nobody_hears_it():
    with connect("python://builtins:len?label=a.c") as runner:
        assert runner.evaluate({"x": 1, "y": 2}) == 2


@settings(max_examples=20)
@given(text=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=400))
def test_of_a_long_label_the_end_is_heard(new_name, text):
    with Host(new_name()) as host, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, host.url, text)
        said = heard(host)[0]
        asking.result()
    assert text.endswith(said) and (said == text or 252 - 4 < len(said.encode()) <= 252)


def ask(url, label, times=1):
    with connect(url, label=label, connect_timeout=5) as runner:
        for _ in range(times):
            runner.evaluate({"x": 1})


def answered(host):
    for request in host:
        request.reply(0)
        yield request

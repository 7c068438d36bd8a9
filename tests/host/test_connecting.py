"""Connecting: nobody there, too many, later, busy; URLs and their options."""

import math
import threading

import pytest
from support.requests import attached

from shmbridge import DeadlineError, Host, InvalidError, NoHostError, UnsupportedError, connect
from shmbridge._episodes.pool import CompilerPool
from shmbridge._native import lib

pytestmark = pytest.mark.timeout(60)  # instead of timing: what ought to end ends


# ---- Busy, or not running ----


def test_a_deadline_tells_a_loop_that_does_not_run_from_a_model_that_computes(name, in_thread):
    go_on = threading.Event()

    def model(request):
        go_on.wait()
        return 1

    def late(runner):
        runner.set_deadline(0.1)
        with pytest.raises(DeadlineError) as caught:
            runner.evaluate({"x": 1})
        return str(caught.value)

    with Host(name) as host:
        with pytest.raises(DeadlineError, match="its loop is not running"):
            connect(name, connect_timeout=0.1)
        serving = in_thread(host.serve, model)
        runner = connect(name)
        assert "use a faster model" in late(runner)
        go_on.set()
        assert connect(name).evaluate({"x": 1}) == 1
        host.close()
        serving.result()
    with Host(name) as host:
        connecting = in_thread(connect, name)
        asking = in_thread(lambda: connecting.result().evaluate({"x": 1}))
        for request in host:
            request.reply(1)
            break
        assert asking.result() == 1
        runner = connecting.result()
        assert "its loop is not running" in late(runner)
        host.receive(timeout=0)
        assert "use a faster model" in late(runner)


def test_a_host_that_does_not_wait_receives_each_request_that_waits(name, in_thread):
    with Host(name) as host, attached(in_thread, host) as runner:
        for k in range(100):
            ticket = runner.send({"x": k})
            host.receive(timeout=0).reply(k)
            assert runner.receive(ticket) == k


@pytest.mark.parametrize(
    ("start", "seconds"),
    [
        (Host, 10),
        (lambda name: Host(name, deadline=60), 60),
        (lambda name: Host(f"shm://{name}?deadline=inf"), math.inf),
        (lambda name: CompilerPool(name).host, math.inf),
        (lambda name: CompilerPool(name, deadline=60).host, 60),
    ],
    ids=["by-default", "slow-model", "in-the-url", "trainer", "trainer-that-says-so"],
)
def test_a_host_says_how_long_its_answers_may_take(name, in_thread, start, seconds):
    with start(name) as host, attached(in_thread, host) as runner:
        assert lib.shmb_runner_deadline(runner._r) == seconds


# ---- Connecting ----


def test_without_a_host_connecting_ends_at_its_timeout_and_says_what_to_do(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for make, more in ("mkdir", ""), ("touch", "; for the file, write .*onnx://.*"):
        getattr(tmp_path / name, make)()
        says = rf'there is no host named "{name}": start one first.* you\){more}$'
        with pytest.raises(NoHostError, match=says):
            connect(name, connect_timeout=0.1)
        name += ".so"


def test_the_urls_connect_timeout_wins(name):
    for timeout in ("0.1", "100ms", "0.1s", "1000us"):
        with pytest.raises(NoHostError):
            connect(
                f"shm://{name}?wait=block&connect_timeout={timeout}&deadline=1",
                connect_timeout=1000,
            )


def test_the_urls_deadline_wins(name, in_thread):
    with Host(name) as host:
        url = f"shm://{name}?deadline=500ms"
        with attached(in_thread, host, url, deadline=1000) as runner:
            with pytest.raises(DeadlineError, match="deadline of 0.5 s"):
                runner.evaluate({"x": 1})
            for bad in (-1, -math.inf, math.nan):
                with pytest.raises(InvalidError, match="deadline"):
                    runner.set_deadline(bad)
            runner.set_deadline(0.06)
            with pytest.raises(DeadlineError, match="deadline of 0.06 s"):
                runner.evaluate({"x": 1})


LONG = "x" * 101


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("", InvalidError, "no URL"),
        *((url, InvalidError, "not a bridge name") for url in ("shm://", "a/b", ".hidden", LONG)),
        ("bridge?connect_timeout=soon", InvalidError, "connect_timeout=soon: expected seconds"),
        ("bridge?connect_timeout", InvalidError, "connect_timeout=: expected seconds"),
        ("bridge?wait=never", InvalidError, "wait=never: expected adaptive, spin or block"),
        ("bridge?dead=1", InvalidError, 'unknown option "dead"'),
        ("pigeon://coop", UnsupportedError, 'no runner for "pigeon://": expected one of shm'),
    ],
)
def test_a_url_that_makes_no_sense_is_an_error_at_once(url, error, says):
    with pytest.raises(error, match=says.replace("?", r"\?")):
        connect(url, connect_timeout=1000)


def test_a_wait_that_is_none_is_an_error(name):
    with pytest.raises(InvalidError, match="wait='sometimes': expected adaptive, spin, block"):
        connect(name, wait="sometimes")
    with pytest.raises(InvalidError, match="wait='sometimes'"):
        Host(name, wait="sometimes")


def test_the_url_may_come_from_the_environment(serve, monkeypatch):
    monkeypatch.delenv("SHMBRIDGE_URL", raising=False)
    with pytest.raises(InvalidError, match="SHMBRIDGE_URL"):
        connect()
    with serve(lambda request: 4) as host:
        monkeypatch.setenv("SHMBRIDGE_URL", host.url)
        with connect() as runner:
            assert runner.evaluate({}) == 4
        monkeypatch.setenv("SHMBRIDGE_URL", f"{host.url}-not?connect_timeout=0")
        with pytest.raises(NoHostError):
            connect()


def test_a_host_that_does_not_take_runners_in_is_told_apart_from_none(name):
    with (
        Host(name),
        pytest.raises(DeadlineError, match="lives but did not accept this runner in time"),
    ):
        connect(name, deadline=0.1)

"""How a host's loop and a runner's wait end: closed, idle, Ctrl-C, deadline; and how connecting ends."""

import os
import signal
import threading
import time

import pytest

from shmbridge import (
    BusyError,
    ClosedError,
    DeadlineError,
    DroppedError,
    Host,
    InvalidError,
    NoHostError,
    UnsupportedError,
    connect,
)

pytestmark = pytest.mark.timeout(60)  # instead of timing: what ought to end ends


# ---- Closed ----


@pytest.mark.parametrize("wait", ["adaptive", "spin", "block"])
def test_closing_ends_the_loop_of_another_thread_and_the_runners_wait(name, wait, in_thread):
    host = Host(name, wait=wait)
    asked, closed = threading.Event(), threading.Event()

    def model(request):
        asked.set()
        closed.wait()
        return [1]

    serving = in_thread(host.serve, model)
    runner = connect(name, wait=wait)
    asking = in_thread(runner.evaluate, {"x": 1})
    asked.wait()
    host.close()
    closed.set()
    serving.result()
    with pytest.raises(ClosedError):
        asking.result()
    with pytest.raises(ClosedError):
        runner.evaluate({"x": 1})
    runner.close()


def test_a_model_may_close_its_host(name, in_thread):
    host = Host(name)

    def model(request):
        if request["last"]:
            host.close()
        return 1

    serving = in_thread(host.serve, model)
    with connect(name) as runner:
        assert runner.evaluate({"last": False}) == 1
        with pytest.raises(ClosedError):
            runner.evaluate({"last": True})
    serving.result()


def test_leaving_the_with_block_closes(name, shm_files):
    with Host(name) as host:
        assert shm_files()
        assert host.url == f"shm://{name}" and repr(host) == f"<Host shm://{name}>"
    assert not shm_files() and "closed" in repr(host)
    del host
    Host(name)  # and so does being let go
    assert not shm_files()


# ---- Idle ----


def test_a_host_without_any_runner_ends_when_it_has_been_idle(name):
    with Host(name, until_idle=0.2) as host:
        assert list(host) == [] and list(host.batches()) == []
        host.serve(lambda request: 1)
        host.serve(lambda request: 1, max_batch=4)


def test_a_host_with_a_runner_is_not_idle(name, in_thread):
    with Host(name, until_idle=0.3) as host:
        serving = in_thread(host.serve, lambda request: 1)
        with connect(name) as runner:
            serving.join(1.0)
            assert serving.is_alive() and runner.evaluate({"x": 1}) == 1
        serving.result()


def test_idleness_begins_when_a_busy_runner_leaves(name, in_thread):
    """A runner that never pauses leaves the loop no moment to notice the time."""
    clock = Clock()
    with Host(name, until_idle=1000) as host, pytest.MonkeyPatch.context() as patch:
        patch.setattr("shmbridge.host.time", clock)
        serving = in_thread(host.serve, lambda request: 1)
        with connect(name) as runner:
            for _ in range(2000):
                runner.evaluate({"x": 1})
                clock.offset += 1
        serving.join(0.5)
        assert serving.is_alive()
        clock.offset += 1001
        serving.result()


class Clock:
    """The time module, ahead by offset seconds."""

    offset = 0.0

    def monotonic(self):
        return time.monotonic() + self.offset


# ---- Ctrl-C ----

SERVING = """
    import sys, shmbridge
    host = shmbridge.Host(sys.argv[1])
    try:
        print("ready", flush=True)
        {loop}
    except KeyboardInterrupt:
        pass
    print("ended", host.runners, flush=True)
    host.close()
"""
LOOPS = {
    "serve": "host.serve(lambda request: 1)",
    "serve in batches": "host.serve(lambda request: 1, max_batch=4, max_wait=1000)",
    "by hand": "for request in host: request.reply(1)",
    "receive": "host.receive()",
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
@pytest.mark.parametrize("asleep", [True, False])
def test_ctrl_c_ends_a_hosts_loop(name, python, loop, asleep, shm_files):
    host = python(SERVING.format(loop=loop), name)
    assert host.line() == "ready"
    if asleep:
        time.sleep(0.3)
    host.send_signal(signal.SIGINT)
    assert host.end() == (0, "ended 0")
    assert not shm_files()


def test_ctrl_c_ends_a_hosts_loop_while_runners_ask(name, python, in_thread):
    host = python(SERVING.format(loop=LOOPS["serve"]), name)
    assert host.line() == "ready"

    def ask():
        with connect(name) as runner, pytest.raises(ClosedError):
            while True:
                assert runner.evaluate({"x": [1, 2]}) == 1

    asking = [in_thread(ask) for _ in range(3)]
    time.sleep(0.3)
    host.send_signal(signal.SIGINT)
    status, out = host.end()
    assert status == 0 and out.startswith("ended")
    for call in asking:
        call.result()


def test_ctrl_c_in_the_model_ends_serve(name, python, in_thread):
    loop = "import time; host.serve(lambda request: print('asked', flush=True) or time.sleep(1000))"
    host = python(SERVING.format(loop=loop), name)
    assert host.line() == "ready"
    runner = connect(name)
    asking = in_thread(runner.evaluate, {"x": 1})
    assert host.line() == "asked"
    host.send_signal(signal.SIGINT)
    status, out = host.end()
    assert status == 0 and out.startswith("ended")
    with pytest.raises((ClosedError, DroppedError)):
        asking.result()
    runner.close()


def test_ctrl_c_gives_a_runners_question_up_and_the_next_is_answered(name, python):
    asker = """
        import sys, shmbridge
        with shmbridge.connect(sys.argv[1]) as runner:
            try:
                runner.evaluate({"i": 1})
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print(runner.evaluate({"i": 2}), flush=True)
    """
    with Host(name, slots=4) as host:
        runner = python(asker, name)
        first = host.receive(timeout=30)
        assert first["i"] == 1
        time.sleep(0.2)
        runner.send_signal(signal.SIGINT)
        assert runner.line() == "interrupted"
        second = host.receive(timeout=30)
        assert second["i"] == 2
        first.reply("the first")
        second.reply("the second")
        assert runner.end() == (0, "the second")


@pytest.mark.parametrize("url", ["{}", "{}?connect_timeout=1000"])
def test_ctrl_c_ends_connecting(name, python, url):
    connecting = python(
        """
        import sys, shmbridge
        print("connecting", flush=True)
        try:
            shmbridge.connect(sys.argv[1], connect_timeout=1000)
        except KeyboardInterrupt:
            print("interrupted")
        """,
        url.format(name),
    )
    assert connecting.line() == "connecting"
    time.sleep(0.2)
    connecting.send_signal(signal.SIGINT)
    assert connecting.end() == (0, "interrupted")


def test_another_signal_ends_nothing(name, python):
    asker = """
        import signal, sys, shmbridge
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        with shmbridge.connect(sys.argv[1]) as runner:
            print(runner.evaluate({"i": 1}), len(seen), flush=True)
    """
    with Host(name) as host:
        runner = python(asker, name)
        request = host.receive(timeout=30)
        for _ in range(3):
            runner.send_signal(signal.SIGUSR1)
            time.sleep(0.1)
        request.reply(5)
        status, out = runner.end()
        assert status == 0 and out.startswith("5 ") and int(out[2:]) >= 1


# ---- Connecting ----


def test_without_a_host_connecting_ends_at_its_timeout_and_says_what_to_do(name):
    with pytest.raises(NoHostError, match=f'there is no host named "{name}": start one first'):
        connect(name, connect_timeout=0.1)
    with pytest.raises(NoHostError):
        connect(name, connect_timeout=0)


def test_the_urls_connect_timeout_wins(name):
    for timeout in ("0.1", "100ms", "0.1s", "1000us"):
        with pytest.raises(NoHostError):
            connect(
                f"shm://{name}?wait=block&connect_timeout={timeout}&deadline=1",
                connect_timeout=1000,
            )


def test_the_urls_deadline_wins(name, in_thread):
    with Host(name) as host:
        connecting = in_thread(lambda: connect(f"shm://{name}?deadline=50ms", deadline=1000))
        while not host.runners:
            host.receive(timeout=0.01)
        with connecting.result() as runner:
            with pytest.raises(DeadlineError, match="deadline of 0.05 s"):
                runner.evaluate({"x": 1})
            runner.set_deadline(0.06)
            with pytest.raises(DeadlineError, match="deadline of 0.06 s"):
                runner.evaluate({"x": 1})


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("", InvalidError, "no URL"),
        ("shm://", InvalidError, "no name"),
        ("a/b", InvalidError, "no name"),
        (".hidden", InvalidError, "no name"),
        ("x" * 101, InvalidError, "no name"),
        ("bridge?connect_timeout=soon", InvalidError, "connect_timeout=soon: expected seconds"),
        ("bridge?connect_timeout", InvalidError, "connect_timeout=: expected seconds"),
        ("bridge?wait=never", InvalidError, "wait=never: expected adaptive, spin or block"),
        ("bridge?dead=1", InvalidError, 'unknown option "dead"'),
        ("pigeon://coop", UnsupportedError, 'no runner for "pigeon://": expected shm://NAME'),
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


def test_the_host_may_start_later(name, in_thread):
    connecting = in_thread(lambda: connect(name, connect_timeout=50).evaluate({"x": 1}))
    connecting.join(0.2)
    with Host(name) as host:
        request = host.receive(timeout=30)
        request.reply(1)
        assert connecting.result() == 1


def test_a_host_that_does_not_take_runners_in_is_told_apart_from_none(name):
    with (
        Host(name),
        pytest.raises(DeadlineError, match="lives but did not accept this runner in time"),
    ):
        connect(name, connect_timeout=0.1)


def test_the_runner_too_many_waits_and_then_says_so(serve, in_thread):
    with serve(lambda request: request["x"]) as host:
        runners = [connect(host.url) for _ in range(16)]
        assert host.runners == 16
        with pytest.raises(BusyError, match=r"all 16 channels .* are taken.*channels="):
            connect(host.url, connect_timeout=0.1)
        seventeenth = in_thread(lambda: connect(host.url, connect_timeout=50))
        seventeenth.join(0.2)
        assert [runner.evaluate({"x": i}) for i, runner in enumerate(runners)] == list(range(16))
        runners.pop().close()
        runners.append(seventeenth.result())
        assert runners[-1].evaluate({"x": 17}) == 17
        for runner in runners:
            runner.close()


def test_channels_of_dead_runners_are_used_again(serve, python):
    code = """
        import sys, time, shmbridge
        runner = shmbridge.connect(sys.argv[1])
        print("in", flush=True)
        time.sleep(1000)
    """
    with serve(lambda request: request["x"], channels=2) as host:
        for i in range(6):
            victim = python(code, host.name)
            assert victim.line() == "in"
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            with connect(host.url) as runner:
                assert runner.evaluate({"x": i}) == i

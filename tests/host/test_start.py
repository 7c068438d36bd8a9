"""host.start: a model that serves in a thread, beside whoever started it."""

import contextlib
import functools
import signal
import threading

import pytest
from support.processes import until

from shmbridge import (
    ClosedError,
    DeadlineError,
    Host,
    InvalidError,
    ModelError,
    ShmbridgeError,
    connect,
)
from shmbridge._native import lib

pytestmark = pytest.mark.timeout(60)  # instead of timing: what ought to end ends


def plus(n):
    return lambda request: request["x"] + n


async def waits(request):
    return 1


class Waits:
    async def __call__(self, request):
        return 1


@pytest.mark.parametrize("model", [waits, functools.partial(waits), Waits(), 7])
def test_what_returns_no_advice_when_it_is_called_is_refused_before_it_is_asked(name, model):
    with Host(name) as host:
        for give in (host.serve, host.start):
            with pytest.raises(InvalidError, match="expected a function"):
                give(model)
        with host.start(plus(1)) as serving:
            with pytest.raises(InvalidError, match="expected a function"):
                serving.model = model
            with connect(name) as runner:
                assert runner.evaluate({"x": 1}) == 2


@pytest.mark.parametrize("options", [{}, {"max_batch": 4}])
def test_a_model_is_changed_between_two_questions(name, options):
    with Host(name) as host, host.start(plus(1), **options) as serving, connect(name) as runner:
        assert runner.evaluate({"x": 1}) == 2
        serving.model = plus(10)
        assert runner.evaluate({"x": 1}) == 11


def test_a_model_changed_in_mid_batch_answers_from_the_next_batch_on(name, in_thread):
    begun, go = threading.Event(), threading.Event()

    def slow(request):
        begun.set()
        go.wait(30)
        return 1

    with Host(name) as host, host.start(slow) as serving, connect(name) as runner:
        asking = in_thread(runner.evaluate, {"x": 1})
        begun.wait(30)
        serving.model = lambda request: 2
        go.set()
        assert asking.result() == 1
        assert runner.evaluate({"x": 1}) == 2


def test_a_host_may_start_again_and_be_served_by_hand(name, in_thread):
    with Host(name) as host:
        with host.start(plus(1)):
            runner = connect(name)
        for n in (1, 2):
            with host.start(plus(n)):
                assert runner.evaluate({"x": 1}) == 1 + n
        asking = in_thread(runner.evaluate, {"x": 1})
        host.receive(30).reply(3)
        assert asking.result() == 3
        runner.close()


def test_a_host_serves_once_at_a_time(name):
    with Host(name) as host, host.start(len), pytest.raises(InvalidError, match="already serves"):
        host.start(len)


def test_wrong_options_are_an_error_at_the_start(name, tmp_path):
    with Host(name) as host:
        with pytest.raises(InvalidError, match="max_size=0"):
            host.start(len, max_batch=0)
        with pytest.raises(OSError):
            host.start(len, record=tmp_path / "none" / "log")


def test_the_end_does_not_wait_for_more_of_a_batch(name, in_thread):
    with Host(name) as host:
        options = {"max_batch": 4, "max_wait": 1000}
        with host.start(lambda batch: [7] * len(batch), **options), connect(name):
            runner = connect(name)
            asking = in_thread(runner.evaluate, {"x": 1})
            until(lambda: lib.shmb_host_waiting(host._h))
        assert asking.result() == 7
        runner.close()


def test_busy_runners_do_not_keep_it_from_ending(name, in_thread):
    ended = threading.Event()

    def ask():
        with connect(name) as runner:
            runner.set_deadline(0.2)
            while not ended.is_set():
                with contextlib.suppress(DeadlineError, ClosedError):
                    runner.evaluate({"x": 1})

    with Host(name) as host:
        asking = [in_thread(ask) for _ in range(3)]
        with host.start(lambda request: 1) as serving:
            until(lambda: host.runners == 3)
        assert not serving.alive
        ended.set()
    for call in asking:
        call.result()


def test_a_model_that_hangs_does_not_keep_the_end(name, in_thread):
    begun, go = threading.Event(), threading.Event()

    def hangs(request):
        begun.set()
        go.wait(30)
        return 5

    with Host(name) as host:
        with host.start(hangs) as serving:
            runner = connect(name)
            asking = in_thread(runner.evaluate, {"x": 1})
            begun.wait(30)
        assert serving.alive
        with pytest.raises(InvalidError):
            host.start(len)
        go.set()
        assert asking.result() == 5
        until(lambda: not serving.alive)
        with host.start(lambda request: 6):
            assert runner.evaluate({"x": 1}) == 6
            runner.close()


def test_what_a_model_raises_is_its_runners_and_counted(name, caplog):
    with Host(name) as host:
        for model, error in (lambda r: 0.5, "not exactly"), (lambda r: 1 / 0, "ZeroDivisionError"):
            with host.start(model) as serving, connect(name) as runner:
                with pytest.raises(ShmbridgeError, match=error):
                    runner.evaluate({"x": 1}, dtype="int64")
                until(lambda: serving.errors == 1 and serving.alive)  # the runner hears first
    assert "ZeroDivisionError" in caplog.text


def quits(request):
    raise SystemExit("enough")


def test_what_ends_the_thread_is_told_at_once_and_raised_at_the_end(name, caplog):
    with Host(name) as host:
        with pytest.raises(SystemExit, match="enough"), host.start(quits) as serving:
            with pytest.raises(ModelError), connect(name) as runner:
                runner.evaluate({"x": 1})
            until(lambda: not serving.alive)
            assert "enough" in caplog.text
        serving.stop()  # it has been told


def test_an_error_of_the_with_block_goes_before_the_threads(name):
    with pytest.raises(KeyError), Host(name) as host, host.start(quits), connect(name) as runner:
        with pytest.raises(ModelError):
            runner.evaluate({"x": 1})
        raise KeyError


@pytest.mark.parametrize("idle", [False, True])
def test_closing_the_host_or_until_idle_ends_it_quietly(name, idle):
    with Host(name, until_idle=0.1 if idle else None) as host, host.start(len) as serving:
        assert idle or serving.alive
        if not idle:
            host.close()
        until(lambda: not serving.alive)


PROGRAM = """
    import sys, threading, time, shmbridge
    def model(request):
        if "hang" in request:
            print("hangs", flush=True)
            threading.Event().wait(1000)
        return 1
    with shmbridge.Host(sys.argv[1]) as host, host.start(model, max_batch=2,
        max_wait=1000) as serving:
        print("ready", flush=True)
        while True:  # in steps: Python's own waits may miss a signal that comes as they begin
            time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(name, python, number, shm_files):
    host = python(PROGRAM, name, stderr=-1)
    assert host.line() == "ready"
    host.send_signal(number)
    _, error = host.communicate(timeout=30)
    assert host.returncode == -number, error
    assert not shm_files()


def test_ctrl_c_ends_it_while_the_model_hangs(name, python, shm_files, in_thread):
    host = python(PROGRAM, name, stderr=-1)
    assert host.line() == "ready"
    with connect(name) as runner:
        asking = in_thread(runner.evaluate, {"hang": 1})
        assert host.line() == "hangs"
        host.send_signal(signal.SIGINT)
        with pytest.raises(Exception, match="closed"):
            asking.result()
    host.communicate(timeout=30)
    assert host.returncode == -signal.SIGINT
    assert not shm_files()


def test_a_program_that_forgets_its_end_ends(name, python, shm_files):
    code = """
        import sys, shmbridge
        host = shmbridge.Host(sys.argv[1])
        serving = host.start(len)
    """
    assert python(code, name).end()[0] == 0
    assert not shm_files()

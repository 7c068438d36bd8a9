"""grpc://: hosts and compilers that close, are killed, stop or fork."""

import contextlib
import os
import signal
import threading

import pytest
from support.grpc import ANY, ask_once
from support.processes import free_port

from shmbridge import ForkedError, Host, HostGoneError, connect

SERVE = """
    import sys
    import shmbridge
    def model(request):
        if request.get("hang"):
            print("asked", flush=True)
            sys.stdin.readline()
        return request["x"]
    with shmbridge.Host(sys.argv[1]) as host:
        print(host.url, flush=True)
        host.serve(model)
"""


def test_the_last_advice_arrives_though_the_host_closes_behind_it(urls, in_thread):
    for _ in range(5):
        with Host(urls[0]) as host:
            asked = in_thread(ask_once, urls[1], {"x": 1})
            for request in host:
                request.reply(7)
                break
        assert asked.result() == 7


def test_training_goes_on_when_the_trainer_is_killed_and_another_calls(python):
    url = f"grpc://127.0.0.1:{free_port()}"
    trainer = python(SERVE, f"{url}?role=client")
    with connect(f"{url}?role=server", connect_timeout=30) as runner:
        assert runner.evaluate({"x": 1}) == 1
        assert trainer.line()
        threading.Thread(target=lambda: trainer.line() and trainer.kill()).start()
        with pytest.raises(HostGoneError, match="the trainer is gone"):
            runner.evaluate({"x": 1, "hang": 1})
        with pytest.raises(HostGoneError):
            runner.evaluate({"x": 1})
    python(SERVE, f"{url}?role=client")
    with connect(f"{url}?role=server", connect_timeout=30) as runner:
        assert runner.evaluate({"x": 3}) == 3


def test_with_retries_a_question_outlives_its_host(urls, python, in_thread):
    host, runner = urls
    first = python(SERVE, host)
    assert first.line() == host

    def restart():
        assert first.line() == "asked"
        first.kill()
        first.wait()
        python(SERVE, host).say()  # which does not hang

    with connect(runner, retries=100, backoff=0.05) as asking:
        call = in_thread(restart)
        assert asking.evaluate({"x": 2, "hang": 1}) == 2
        call.result()
        assert asking.evaluate({"x": 3}) == 3


def test_a_program_that_closes_nothing_ends(urls, python):
    host = python(
        """
        import sys, shmbridge
        host = shmbridge.Host(sys.argv[1])
        print(host.url, flush=True)
        for request in host:
            last = request["x"]
            request.reply(int(last))
            if last: break
        """,
        urls[0],
    )
    assert host.line()
    compiler = python(
        """
        import sys, shmbridge
        runner = shmbridge.connect(sys.argv[1])
        print(runner.evaluate({"x": 0}), flush=True)
        sys.stdin.readline()
        """,
        urls[1],
    )
    assert compiler.line() == "0"
    assert compiler.end()[0] == 0
    with connect(urls[1], connect_timeout=30) as runner:
        assert runner.evaluate({"x": 1}) == 1
        assert host.end()[0] == 0


def test_a_stopped_host_is_noticed(python):
    process = python(SERVE, ANY)
    with connect(f"{process.line()}?keepalive=0.3") as runner:
        assert runner.evaluate({"x": 1}) == 1
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(HostGoneError):
            runner.evaluate({"x": 1})


def test_in_a_forked_child_runner_and_host_are_the_parents(serving):
    host = serving(lambda request: 1)
    with connect(host.url) as runner:
        runner.evaluate({"x": 1})
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                try:
                    runner.evaluate({"x": 1})
                except ForkedError:
                    status = 2
                runner.close()
                host.close()
                status += 5
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert runner.evaluate({"x": 1}) == 1

"""grpc://: deadlines, Ctrl-C and interrupts."""

import math
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.grpc import ANY
from support.processes import free_port

from shmbridge import BusyError, DeadlineError, Host, NoHostError, connect
from shmbridge._native import lib

grpc = pytest.importorskip("grpc")


def test_the_host_says_how_long_its_answers_may_take(serving):
    for options, seconds in ({}, 10), ({"deadline": 60}, 60), ({"deadline": math.inf}, math.inf):
        with connect(serving(lambda request: 1, **options).url) as runner:
            assert lib.shmb_runner_deadline(runner._r) == seconds


def test_a_compiler_that_serves_itself_waits_as_long_as_its_trainer_lives(serving):
    address = f"grpc://127.0.0.1:{free_port()}"
    serving(lambda request: 1, f"{address}?role=client")
    with connect(f"{address}?role=server", connect_timeout=30) as runner:
        assert lib.shmb_runner_deadline(runner._r) == math.inf


def test_what_a_runner_gives_up_frees_its_channel(serving):
    go = threading.Event()
    host = serving(lambda request: go.wait(20) and 1, channels=1)
    with connect(host.url) as runner, pytest.raises(DeadlineError):
        runner.set_deadline(0.1)
        runner.evaluate({"x": 1})
    go.set()
    with connect(host.url) as runner:
        assert runner.evaluate({"x": 1}) == 1


def test_nobody_there_is_said_with_the_reason():
    with pytest.raises(NoHostError, match=r"within 1 s: .*refused"):
        connect(f"grpc://127.0.0.1:{free_port()}", connect_timeout=1)
    with pytest.raises(NoHostError, match="no trainer has called"):
        connect(f"grpc://127.0.0.1:{free_port()}?role=server", connect_timeout=0.3)
    with pytest.raises(NoHostError, match="refused"):
        connect(f"grpc://127.0.0.1:{free_port()}", connect_timeout=0)


def test_a_host_that_does_not_look_lets_nobody_in():
    with Host(ANY) as host, pytest.raises((BusyError, DeadlineError)):
        connect(host.url, deadline=0.3)
    answers = {"getAdvice": grpc.stream_stream_rpc_method_handler(lambda asked, _: asked)}
    silent = grpc.method_handlers_generic_handler("shmbridge.Bridge", answers)
    server = grpc.server(ThreadPoolExecutor(2), handlers=[silent])  # without checks of health
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(DeadlineError, match="is alive, but did not accept"):
        connect(f"grpc://127.0.0.1:{port}", connect_timeout=0.5)
    server.stop(0)


@pytest.mark.parametrize("doing", ["connecting", "asking"])
def test_ctrl_c_ends_every_wait(doing, serving):
    asked, go = threading.Event(), threading.Event()

    def model(request):
        asked.set()
        go.wait(20)
        return 1

    host = serving(model)

    def interrupt():
        if doing == "asking":
            asked.wait(20)
        else:
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        if doing == "asking":
            with connect(host.url) as runner:
                runner.evaluate({"x": 1})
        else:
            connect(f"grpc://127.0.0.1:{free_port()}", connect_timeout=30)
    go.set()

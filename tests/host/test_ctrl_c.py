"""Ctrl-C ends every loop and wait."""

import gc
import signal
import threading
import time

import pytest
from support.processes import until

from shmbridge import ClosedError, DroppedError, Host, connect
from shmbridge._bridge import open_hosts, overview

pytestmark = pytest.mark.timeout(60)  # instead of timing: what ought to end ends


SERVING = """
    import sys, time, shmbridge
    def forever(request):
        print("asked", flush=True)
        while True:  # in steps: Python's own waits may miss a signal that comes as they begin
            time.sleep(0.05)
    host = shmbridge.Host(sys.argv[1])
    try:
        print("ready", flush=True)
        {loop}
    except KeyboardInterrupt:
        pass
    print("ended", host, flush=True)
    host.close()
"""


def test_ctrl_c_ends_a_hosts_loop_while_runners_ask(name, python, in_thread):
    host = python(SERVING.format(loop="host.serve(lambda request: 1)"), name)
    assert host.line() == "ready"

    all_ask = threading.Barrier(4)

    def ask():
        with connect(name) as runner, pytest.raises(ClosedError):
            runner.evaluate({"x": [1, 2]})
            all_ask.wait(30)
            while True:
                assert runner.evaluate({"x": [1, 2]}) == 1

    asking = [in_thread(ask) for _ in range(3)]
    all_ask.wait(30)
    host.send_signal(signal.SIGINT)
    status, out = host.end()
    assert status == 0 and out.startswith("ended")
    for call in asking:
        call.result()


def test_ctrl_c_in_the_model_ends_serve(name, python, in_thread):
    host = python(SERVING.format(loop="host.serve(forever)"), name)
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


@pytest.mark.parametrize("url", ["{}", "{}?connect_timeout=1000"])
def test_ctrl_c_ends_connecting(name, python, url):
    connecting = python(
        """
        import sys
        from shmbridge import connect  # no import is under way when the signal comes
        try:
            print("connecting", flush=True)
            connect(sys.argv[1], connect_timeout=1000)
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


@pytest.mark.parametrize("loop", ["host", "host.batches()"])
@pytest.mark.parametrize("inside", [True, False])
def test_ctrl_c_in_a_loop_closes_the_host_and_leaves_its_with_block(
    name, python, in_thread, loop, inside, shm_files
):
    host = python(
        f"""
        import sys, time, shmbridge
        with shmbridge.Host(sys.argv[1]) as host:
            print("ready", flush=True)
            for question in {loop}:
                print("asked", flush=True)
                while True:
                    time.sleep(0.05)
        print("ended", host, flush=True)
        """,
        name,
    )
    assert host.line() == "ready"
    if inside:
        asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
        assert host.line() == "asked"
    until(lambda: overview.bridge(name).looping)
    host.send_signal(signal.SIGINT)
    assert host.end() == (0, f"ended <Host shm://{name}, closed>")
    if inside:
        with pytest.raises((ClosedError, DroppedError)):
            asking.result()
    assert not shm_files()


def test_ctrl_c_while_a_host_is_made_leaves_no_file(name, monkeypatch, shm_files):
    def interrupted(host):
        raise KeyboardInterrupt

    monkeypatch.setattr(open_hosts, "opened", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Host(name)
    gc.collect()
    assert not shm_files()

"""shmbridge relay: any host joined to any runner; its command, and deaths on both sides."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from support.cli import refused
from support.processes import free_port, until

from shmbridge import Host, HostGoneError, ModelError, NoHostError, ShmbridgeError, connect
from shmbridge.hosts import _relay
from shmbridge.hosts._relay import Relay

pytestmark = pytest.mark.usefixtures("no_bridges")
X = np.arange(8, dtype=np.float32)[::-1].copy()


SERVE = """
    import sys
    import shmbridge
    with shmbridge.Host(sys.argv[1]) as host:
        print(host.url, flush=True)
        host.serve(lambda request: int(request["x"]))
"""


def advise(features):
    """argmax(2 - x), as the paper has it."""
    if "fail" in features:
        raise ValueError("no advice for you")
    return int(np.argmax(2 - features["x"]))


@pytest.fixture
def serving(name):  # which is removed after the host
    """serving(url, model): a host whose loop runs in a thread; its url."""
    with contextlib.ExitStack() as stack:

        def start(url, model=advise, **options):
            host = stack.enter_context(Host(url, **options))
            stack.enter_context(host.start(model))
            return host.url

        yield start


@pytest.fixture
def target(tmp_path, serving, name):
    """target(kind): the URL of a model that a runner opens."""

    def grpc():
        pytest.importorskip("grpc", reason="grpc:// needs grpcio")
        return serving("grpc://127.0.0.1:0")

    def python():
        (tmp_path / "relayed_model.py").write_text(
            "import numpy\ndef advise(f): return int(numpy.argmax(2 - f['x']))\n"
        )
        return f"python://relayed_model:advise?path={tmp_path}"

    def onnx():
        for package in ("onnx", "onnxruntime"):
            pytest.importorskip(package, reason="makes and runs a model")
        from support import onnx_models

        return f"onnx://{onnx_models.two_minus(tmp_path / 'm.onnx')}"

    kinds = {
        "shm": lambda: serving(name),
        "pipe": lambda: serving(f"pipe://{tmp_path}/target?serdes=flatbuffers"),
        "grpc": grpc,
        "python": python,
        "onnx": onnx,
    }
    return lambda kind: kinds[kind]()


@pytest.fixture
def relay(in_thread, name):
    """relay(host_url, runner_url, **options): a relay whose loop runs in a thread."""
    with contextlib.ExitStack() as stack:

        def start(host_url, runner_url, **options):
            tap = Relay(runner_url, host_url, **options)
            call = in_thread(tap.serve)
            stack.callback(call.result)
            stack.callback(tap.close)
            return tap

        yield start


def listener(kind, tmp_path, new_name):
    """(what a relay listens at, what compilers open; None: the host's url)"""
    if kind.startswith("grpc"):
        pytest.importorskip("grpc", reason="grpc:// needs grpcio")
    if kind == "grpc, called":
        address = f"grpc://127.0.0.1:{free_port()}"
        return f"{address}?role=client", f"{address}?role=server"
    return {
        "shm": f"shm://{new_name()}",
        "pipe": f"pipe://{tmp_path}/listen?serdes=flatbuffers",
        "grpc": "grpc://127.0.0.1:0",
    }[kind], None


# ---- Any host, any runner ----


# Each host once, and each runner.
@pytest.mark.parametrize(
    ("host", "runner", "options"),
    [
        ("shm", "pipe", {}),
        ("pipe", "grpc", {}),
        ("grpc", "shm", {}),
        ("grpc, called", "shm", {}),
        ("shm", "python", {"channels": 2}),
        ("grpc", "onnx", {"channels": 2}),
    ],
)
def test_any_host_is_joined_to_any_runner(host, runner, options, target, relay, tmp_path, new_name):
    here, there = listener(host, tmp_path, new_name)
    try:
        behind = target(runner)
    except ShmbridgeError as error:
        pytest.skip(str(error))
    tap = relay(here, behind, **options)
    with connect(there or tap.host.url) as asking:
        assert [asking.evaluate({"x": np.roll(X, i)}, dtype=np.int64) for i in range(3)] == [
            7,
            0,
            1,
        ]
    until(lambda: tap.asked == 3)
    assert tap.errors == 0


class SlowQueue(SimpleQueue):
    """The thread that takes what was put runs first."""

    def put(self, item):
        super().put(item)
        time.sleep(0.1)


def test_the_next_runners_question_is_asked_once(serving, relay, name, new_name, monkeypatch):
    monkeypatch.setattr(_relay, "SimpleQueue", SlowQueue)
    seen = []

    def model(request):
        seen.append(int(request["x"]))
        time.sleep(0.2)
        return request["x"]

    serving(name, model)
    tap = relay(f"shm://{new_name()}", name, channels=1)
    for i in range(3):
        with connect(tap.host.url, deadline=30) as asking:
            assert asking.evaluate({"x": i}) == i
    assert seen == [0, 1, 2]


def test_two_relays_in_a_row_carry_scalars_as_they_are(serving, relay, name, new_name):
    pytest.importorskip("grpc", reason="grpc:// needs grpcio")
    serving(
        name, lambda request: {"a": np.float32(request["x"]), "b": np.bool_(True), "c": np.int8(-1)}
    )
    far = relay("grpc://127.0.0.1:0", name)
    near = relay(f"shm://{new_name()}", far.host.url)
    with connect(near.host.url) as asking:
        asking.evaluate({"x": 0.1})
        assert asking.advice == {"a": np.float32(0.1), "b": True, "c": -1}
        assert asking.evaluate({"x": 1}) == {"a": 1, "b": True, "c": -1}


# ---- The command ----

RELAY = [sys.executable, "-P", "-m", "shmbridge.cli", "relay"]


@pytest.fixture
def command():
    """command(host_url, runner_url): the relay as a program, whose first line has come."""
    started = []

    def start(*words):
        started.append(
            subprocess.Popen(
                [*RELAY, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return started[-1], started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_it_joins_and_ends_by_a_signal_with_a_summary(
    end, serving, name, new_name, command
):
    serving(name)
    here = f"shm://{new_name()}"
    process, line = command(here, name, "--channels", "2")
    assert line == f"relaying {here} to {name} (to end it: Ctrl-C)"
    with connect(here) as asking:
        assert asking.evaluate({"x": X}) == 7
        with pytest.raises(ModelError):
            asking.evaluate({"fail": 1})
    process.send_signal(end)
    assert process.communicate(timeout=20)[0] == "2 questions passed on, 1 answered with an error\n"
    assert process.returncode == 0


def test_a_signal_ends_it_also_while_the_model_computes(python, name, new_name, command):
    pytest.importorskip("grpc", reason="grpc:// needs grpcio")
    model = python(
        """
        import sys, shmbridge
        with shmbridge.Host("grpc://127.0.0.1:0") as host:
            print(host.url, flush=True)
            for request in host:
                print("asked", flush=True)
                sys.stdin.readline()
        """
    )
    here = f"shm://{new_name()}"
    process, _ = command(here, model.line())
    code = f"import shmbridge; shmbridge.connect({here!r}).evaluate({{'x': 1}})"
    words = [sys.executable, "-P", "-c", code]
    asking = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert model.line() == "asked"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert "ClosedError" in asking.communicate(timeout=20)[1]


def test_a_target_that_is_not_there_is_an_error_after_its_connect_timeout(new_name, name):
    words = "relay", f"shm://{new_name()}", f"shm://{name}?connect_timeout=0.1"
    assert "no host" in refused(1, *words)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly_while_it_waits_for_its_target(end, new_name):
    words = [*RELAY, f"shm://{new_name()}", f"shm://{new_name()}?connect_timeout=60"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def catches_sigterm():
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1

    until(catches_sigterm)
    process.send_signal(end)
    assert process.communicate(timeout=20)[1] == "" and process.returncode == 130


# ---- Deaths ----


@pytest.mark.parametrize("kind", ["shm", "grpc", "retries"])
def test_it_outlives_the_target_and_finds_it_again(kind, python, name, new_name, relay, in_thread):
    """With retries compilers only wait while the target is away."""
    if kind == "grpc":
        pytest.importorskip("grpc", reason="grpc:// needs grpcio")
    url = f"grpc://127.0.0.1:{free_port()}" if kind == "grpc" else f"shm://{name}"
    first = python(SERVE, url)
    assert first.line() == url
    waits = "?retries=200&backoff=0.05" if kind == "retries" else ""
    tap = relay(f"shm://{new_name()}", url + waits)
    with connect(tap.host.url) as asking:
        assert asking.evaluate({"x": 1}) == 1
        first.kill()
        first.wait()
        call = in_thread(asking.evaluate, {"x": 2})
        if not waits:
            with pytest.raises((HostGoneError, NoHostError)):
                call.result()
        second = python(SERVE, url)
        assert second.line() == url
        assert not waits or call.result() == 2

        def finds_it():
            with contextlib.suppress(ShmbridgeError):
                return asking.evaluate({"x": 3}) == 3

        until(finds_it)
        second.send_signal(signal.SIGINT)
        second.wait()

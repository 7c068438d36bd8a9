"""grpc://, whichever side serves: values, errors, limits, TLS, deaths, and other people's messages."""

import contextlib
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from shmbridge import (
    BusyError,
    ClosedError,
    DeadlineError,
    DroppedError,
    ForkedError,
    Host,
    HostGoneError,
    InexactError,
    InterruptedCallError,
    InUseError,
    InvalidError,
    MismatchError,
    ModelError,
    NoHostError,
    Ragged,
    TensorSpec,
    TooLargeError,
    UnsupportedError,
    connect,
    plugins,
    segment,
)
from shmbridge._native import lib

try:
    plugins.find("hosts", "grpc")
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

ANY = "grpc://127.0.0.1:0"

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

ASK = """
    import sys
    import shmbridge
    with shmbridge.connect(sys.argv[1], connect_timeout=20) as runner:
        print("connected", flush=True)
        for line in sys.stdin:
            try:
                print(runner.evaluate({"x": 1, "hang": int(line)}), flush=True)
            except shmbridge.ShmbridgeError as error:
                print(type(error).__name__, flush=True)
"""


@pytest.fixture(autouse=True)
def no_bridges():
    """What killed hosts leave is removed at the end, as `shmbridge gc` does."""
    yield
    segment.gc()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def serving(in_thread):
    """serving(model, url=…, **options): a host whose loop runs in a thread; closed when the test ends."""
    hosts, calls = [], []

    def start(model, url=ANY, **options):
        hosts.append(Host(url, **options))
        calls.append(in_thread(hosts[-1].serve, model))
        return hosts[-1]

    yield start
    for host, call in zip(hosts, calls, strict=True):
        host.close()
        call.result()


@pytest.fixture(params=["host serves", "compiler serves"])
def joined(request, serving):
    """joined(model, query="", **options): a host and a runner of it, whichever side serves."""
    with contextlib.ExitStack() as stack:

        def join(model, query="", **options):
            if request.param == "host serves":
                host = serving(model, **options)
                return host, stack.enter_context(connect(host.url + query))
            address = f"grpc://127.0.0.1:{free_port()}"
            host = serving(model, f"{address}?role=client", **options)
            return host, stack.enter_context(
                connect(f"{address}?role=server{query.replace('?', '&')}")
            )

        yield join


def until(condition, seconds=10):
    """Waits for it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)


def same(found, sent):
    if isinstance(sent, Ragged):
        return same(found.values, sent.values) and list(found.offsets) == list(sent.offsets)
    if isinstance(sent, np.ndarray):
        return (
            found.dtype == sent.dtype and found.shape == sent.shape and bool(np.all(found == sent))
        )
    return found == sent


# ---- Questions and answers ----


def test_every_kind_of_value_comes_back_as_it_was(joined, echo):
    values = {
        "scalar": 7,
        "matrix": np.arange(6, dtype=np.int16).reshape(2, 3),
        "empty": np.empty((0, 4), np.float32),
        "flags": np.array([True, False]),
        "text": "naïve\0 \udcff",
        "texts": ["a", "", "b"],
        "rows": Ragged.from_rows([np.arange(2.0), np.arange(0.0), np.arange(3.0)]),
    }
    _, runner = joined(echo)
    found = runner.evaluate(values)
    assert list(found) == list(values)
    assert all(same(found[name], value) for name, value in values.items())


def test_the_advice_comes_in_the_wanted_dtype(joined):
    _, runner = joined(lambda request: float(request["x"]))
    assert runner.evaluate({"x": 3}, dtype=np.int8) == 3
    with pytest.raises(InexactError, match="not exactly a int8"):
        runner.evaluate({"x": 0.5}, dtype=np.int8)
    assert runner.evaluate({"x": 4}) == 4


def test_scalars_keep_their_dtype(joined):
    _, runner = joined(lambda request: np.float32(0.1))
    assert runner.evaluate({"x": 3}, dtype=np.float32) == np.float32(0.1)


def test_a_models_failure_keeps_its_class_and_text(joined):
    def model(request):
        if "drop" in request:
            return request._drop()
        raise MismatchError("other shapes, please") if request["x"] else ValueError("naïve")

    _, runner = joined(model)
    with pytest.raises(ModelError, match="^ValueError: naïve$"):
        runner.evaluate({"x": 0})
    with pytest.raises(MismatchError, match="^other shapes, please$"):
        runner.evaluate({"x": 1})


def test_a_question_that_is_let_go_is_dropped(in_thread):
    with Host(ANY) as host:

        def loop():
            for request in host:
                if "last" in request:
                    return request.reply(0)

        call = in_thread(loop)
        with connect(host.url) as runner:
            with pytest.raises(DroppedError):
                runner.evaluate({"x": 1})
            assert runner.evaluate({"last": 1}) == 0
        call.result()


def test_the_hosts_specs_are_kept(serving):
    host = serving(
        lambda request: 1,
        features=[TensorSpec("x", np.float32, (2,))],
        advice=[TensorSpec("a", np.int32)],
    )
    with connect(host.url) as runner, pytest.raises(MismatchError, match="expects x"):
        runner.evaluate({"x": 1})


def test_arrays_may_be_kept(joined):
    kept = []

    def model(request):
        kept.append(request["x"])
        return len(kept)

    _, runner = joined(model, slots=4)
    for i in range(9):
        runner.evaluate({"x": np.full(100, i)})
    assert [array[0] for array in kept] == list(range(9))
    kept.clear()
    gc.collect()


def test_batches_hold_the_questions_of_several_compilers(in_thread):
    sizes = []
    with Host(ANY) as host:

        def loop():
            for batch in host.batches(max_size=2, max_wait=5):
                sizes.append(len(batch["x"]))
                batch.reply(batch["x"] * 10)

        call = in_thread(loop)
        with connect(host.url) as a, connect(host.url) as b:
            until(lambda: host.runners == 2)
            both = [in_thread(runner.evaluate, {"x": i}) for i, runner in enumerate((a, b))]
            assert [one.result() for one in both] == [0, 10]
        host.close()
        call.result()
    assert sizes == [2]


def test_many_compilers_share_one_port(serving, in_thread):
    host = serving(lambda request: request["x"] + 1)

    def ask(i):
        with connect(host.url) as runner:
            return [runner.evaluate({"x": i * 100 + k}) for k in range(20)]

    calls = [in_thread(ask, i) for i in range(8)]
    assert [call.result() for call in calls] == [
        [i * 100 + k + 1 for k in range(20)] for i in range(8)
    ]
    until(lambda: host.runners == 0)


def test_a_trainer_calls_several_compilers(serving):
    ports = [free_port() for _ in range(3)]
    urls = [f"grpc://127.0.0.1:{port}?role=server" for port in ports]
    host = serving(
        lambda request: request["x"] * 2,
        f"grpc://{','.join(f'127.0.0.1:{port}' for port in ports)}?role=client",
    )
    with connect(urls[0]) as a, connect(urls[2]) as c:
        until(lambda: host.runners == 2)
        assert a.evaluate({"x": 1}) == 2 and c.evaluate({"x": 3}) == 6
        with connect(urls[1]) as b:
            assert b.evaluate({"x": 2}) == 4 and a.evaluate({"x": 5}) == 10
    until(lambda: host.runners == 0)


def test_a_unix_socket_does_too(serving, tmp_path):
    url = f"grpc://unix:{tmp_path}/socket"
    host = serving(lambda request: 5, url)
    assert host.url == url
    with connect(url) as runner:
        assert runner.evaluate({"x": 0}) == 5
    with pytest.raises(InUseError, match="listens there"):
        Host(url)


# ---- Limits ----


def test_when_all_channels_are_taken_a_runner_is_told_so(serving):
    host = serving(lambda request: 1, channels=1)
    with connect(host.url) as runner:
        assert runner.evaluate({"x": 0}) == 1
        with pytest.raises(BusyError, match="channel"):
            connect(host.url, connect_timeout=0.3)
    with connect(host.url) as runner:
        assert runner.evaluate({"x": 0}) == 1


def test_what_is_too_large_is_named_with_its_limit(joined):
    _, runner = joined(
        lambda request: np.zeros(int(request["n"])), request_bytes=4096, advice_bytes=4096
    )
    with pytest.raises(TooLargeError, match="request_bytes"):
        runner.evaluate({"x": np.zeros(5000)})
    with pytest.raises(TooLargeError, match="advice_bytes"):
        runner.evaluate({"n": 5000})
    assert same(runner.evaluate({"n": 2}), np.zeros(2))


def test_a_message_beyond_message_bytes_is_named_with_its_size(serving):
    host = serving(lambda request: np.zeros(int(request["n"])), f"{ANY}?message_bytes=8192")
    with connect(f"{host.url}?message_bytes=4096") as runner:
        with pytest.raises(TooLargeError, match=r"8192.*had 40\d\d\d bytes.*message_bytes="):
            runner.evaluate({"x": np.zeros(5000)})
        with pytest.raises(TooLargeError, match="4096.*message_bytes="):
            runner.evaluate({"n": 1000})
        assert same(runner.evaluate({"n": 2}), np.zeros(2))


@pytest.mark.parametrize(
    "url, text",
    [
        ("grpc://h:1?colour=red", "no option colour"),
        ("grpc://h:1?role=both", "expected server or client"),
        ("grpc://h:1?role=server&ca=x", "both cert=FILE and key=FILE"),
        ("grpc://h:1?cert=x", "both cert=FILE and key=FILE"),
        ("grpc://h:1?message_bytes=many", "expected a number"),
        ("grpc://h:1?message_bytes=0", "expected 1 or more"),
        ("grpc://h:1?service=a.B/c&messages=no_such_module", "which can be imported"),
        ("grpc://", "expected grpc://"),
        ("grpc://h:1,h:2", "expected grpc://"),
        ("grpc://h", "expected grpc://HOST:PORT"),
        ("grpc://h:port", "expected grpc://HOST:PORT"),
        ("grpc://h:65536", "expected grpc://HOST:PORT"),
        ("grpc://:1", "expected grpc://HOST:PORT"),
        ("grpc://unix:/no/such/folder/s?role=server", "a folder that may be written to"),
        ("grpc://h:1?ca=/no/such.pem&cert=/no&key=/no", "expected a file in PEM"),
    ],
)
def test_options_that_make_no_sense_are_refused_on_both_sides(url, text):
    for make in (Host, lambda url: connect(url, connect_timeout=0)):
        with pytest.raises(InvalidError, match=text):
            make(url)


def test_a_port_is_one_servers(serving):
    host = serving(lambda request: 1)
    with pytest.raises(InUseError, match="another server listens there"):
        Host(host.url)
    with pytest.raises(InUseError, match="another server listens there"):
        connect(f"{host.url}?role=server", connect_timeout=0.1)
    with pytest.raises(InvalidError, match="expected HOST:PORT"):
        Host("grpc://not-an-address-of-any-machine.invalid:1")
    with pytest.raises(InvalidError, match="expected grpc://HOST:PORT"):
        Host("grpc://127.0.0.1:1,127.0.0.1?role=client")
    with pytest.raises(InvalidError, match="spin"):
        Host(ANY, wait="spin")


# ---- Deadlines, cancellation ----


def test_a_deadline_ends_the_question_and_its_late_answer_is_dropped(joined):
    go, waiting = threading.Event(), threading.Event()

    def model(request):
        if request["x"] < 0:
            waiting.set()
            go.wait(20)
        return request["x"]

    host, runner = joined(model)
    runner.set_deadline(0.2)
    with pytest.raises(DeadlineError, match=r"0\.2 s"):
        runner.evaluate({"x": -1})
    assert waiting.wait(10)
    runner.set_deadline(20)
    go.set()
    assert [runner.evaluate({"x": i}) for i in range(3)] == [0, 1, 2]


def test_what_a_runner_gives_up_frees_its_channel(serving):
    go = threading.Event()
    host = serving(lambda request: go.wait(20) and 1, channels=1)
    with connect(host.url, deadline=0.1) as runner, pytest.raises(DeadlineError):
        runner.evaluate({"x": 1})
    go.set()
    with connect(host.url) as runner:
        assert runner.evaluate({"x": 1}) == 1


def test_nobody_there_is_said_with_the_reason():
    begin = time.monotonic()
    with pytest.raises(NoHostError, match=r"within 0\.3 s: .*refused"):
        connect(f"grpc://127.0.0.1:{free_port()}", connect_timeout=0.3)
    with pytest.raises(NoHostError, match="no trainer has called"):
        connect(f"grpc://127.0.0.1:{free_port()}?role=server", connect_timeout=0.3)
    with pytest.raises(NoHostError, match="refused"):
        connect(f"grpc://127.0.0.1:{free_port()}", connect_timeout=0)
    assert time.monotonic() - begin < 10


def test_a_host_that_does_not_look_lets_nobody_in():
    with Host(ANY) as host, pytest.raises((BusyError, DeadlineError)):
        connect(host.url, connect_timeout=0.3)


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

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        if doing == "asking":
            with connect(host.url) as runner:
                runner.evaluate({"x": 1})
        else:
            connect(f"grpc://127.0.0.1:{free_port()}", connect_timeout=30)
    go.set()


@pytest.mark.parametrize("deadline", [None, 30])
def test_an_interrupt_ends_a_question(deadline, joined):
    asked, go = threading.Event(), threading.Event()

    def model(request):
        if request["x"]:
            asked.set()
            go.wait(20)
        return 7

    _, runner = joined(model)
    runner.set_deadline(deadline)
    threading.Thread(target=lambda: asked.wait(20) and lib.shmb_interrupt(runner._r)).start()
    with pytest.raises(InterruptedCallError):
        runner.evaluate({"x": 1})
    go.set()
    assert runner.evaluate({"x": 0}) == 7


# ---- Death ----


def test_a_host_that_closes_says_so(joined):
    asked = threading.Event()

    def model(request):
        if request["x"]:
            asked.set()
            host.close()
        return 1

    host, runner = joined(model)
    runner.evaluate({"x": 0})
    with pytest.raises((ClosedError, HostGoneError)):
        runner.evaluate({"x": 1})
    with pytest.raises((ClosedError, HostGoneError)):
        runner.evaluate({"x": 0})


@pytest.mark.parametrize("role", ["host serves", "compiler serves"])
def test_the_last_advice_arrives_though_the_host_closes_behind_it(role, in_thread):
    called = role == "compiler serves"
    for _ in range(5):
        url = f"grpc://127.0.0.1:{free_port()}"
        with Host(f"{url}?role=client" if called else url) as host:
            asked = in_thread(ask_once, f"{url}?role=server" if called else url, {"x": 1})
            for request in host:
                request.reply(7)
                break
        assert asked.result() == 7


def ask_once(url, features):
    with connect(url) as runner:
        return runner.evaluate(features)


def test_a_killed_host_is_noticed_and_the_next_one_is_found(python):
    port = free_port()
    first = python(SERVE, f"grpc://127.0.0.1:{port}")
    url = first.line()
    with connect(url) as busy, connect(url) as idle:
        assert busy.evaluate({"x": 1}) == idle.evaluate({"x": 1}) == 1
        threading.Thread(target=lambda: first.line() and first.kill()).start()
        with pytest.raises(HostGoneError):
            busy.evaluate({"x": 1, "hang": 1})
        with pytest.raises(HostGoneError):
            idle.evaluate({"x": 1})
    second = python(SERVE, url)
    with connect(url) as runner:  # which waits for it
        assert runner.evaluate({"x": 2}) == 2
    assert second.line() == url


def test_a_killed_compiler_leaves_its_channel_to_the_next(serving, python):
    asked = threading.Event()
    go = threading.Event()

    def model(request):
        if request["hang"]:
            asked.set()
            go.wait(20)
        return 4

    host = serving(model, channels=1)
    worker = python(ASK, host.url)
    assert worker.line() == "connected"
    worker.say("1")
    assert asked.wait(20)
    worker.kill()
    go.set()
    with connect(host.url) as runner:
        assert runner.evaluate({"x": 1, "hang": 0}) == 4


def test_training_goes_on_when_a_compiler_is_killed_and_another_serves(serving, python):
    url = f"grpc://127.0.0.1:{free_port()}"
    asked, go = threading.Event(), threading.Event()

    def model(request):
        if request["hang"]:
            asked.set()
            go.wait(20)
        return 4

    host = serving(model, f"{url}?role=client")
    worker = python(ASK, f"{url}?role=server")
    assert worker.line() == "connected"
    worker.say("0")
    assert worker.line() == "4"
    worker.say("1")
    assert asked.wait(20)
    worker.kill()
    worker.wait()
    go.set()
    with connect(f"{url}?role=server") as runner:
        assert runner.evaluate({"x": 1, "hang": 0}) == 4
    until(lambda: host.runners == 0)


def test_training_goes_on_when_the_trainer_is_killed_and_another_calls(python):
    url = f"grpc://127.0.0.1:{free_port()}"
    trainer = python(SERVE, f"{url}?role=client")
    with connect(f"{url}?role=server") as runner:
        assert runner.evaluate({"x": 1}) == 1
        assert trainer.line()
        threading.Thread(target=lambda: trainer.line() and trainer.kill()).start()
        with pytest.raises(HostGoneError, match="the trainer has gone"):
            runner.evaluate({"x": 1, "hang": 1})
        with pytest.raises(HostGoneError):
            runner.evaluate({"x": 1})
    python(SERVE, f"{url}?role=client")
    with connect(f"{url}?role=server") as runner:
        assert runner.evaluate({"x": 3}) == 3


@pytest.mark.parametrize("role", ["host serves", "compiler serves"])
def test_with_retries_a_question_outlives_its_host(role, python, in_thread):
    url = f"grpc://127.0.0.1:{free_port()}"
    host, runner = (
        (url, url) if role == "host serves" else (f"{url}?role=client", f"{url}?role=server")
    )
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


@pytest.mark.parametrize("role", ["host serves", "compiler serves"])
def test_a_program_that_closes_nothing_ends(role, python):
    url = f"grpc://127.0.0.1:{free_port()}"
    called = role == "compiler serves"
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
        f"{url}?role=client" if called else url,
    )
    assert host.line()
    compiler = python(
        """
        import sys, shmbridge
        runner = shmbridge.connect(sys.argv[1])
        print(runner.evaluate({"x": 0}), flush=True)
        sys.stdin.readline()
        """,
        f"{url}?role=server" if called else url,
    )
    assert compiler.line() == "0"
    assert compiler.end()[0] == 0
    with connect(f"{url}?role=server" if called else url) as runner:
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


def test_a_compiler_in_c_asks_by_the_embedding(serving, embedding, c_runner):
    host = serving(lambda request: int(request["x"]))
    runner = c_runner(host.url, env={**os.environ, "SHMBRIDGE_PYTHON_LIBRARY": str(embedding)})
    runner.do("feature x 5 0", (7).to_bytes(8, "little").hex())
    assert runner.do("i64") == "0 7"
    runner.communicate(timeout=20)
    assert runner.returncode == 0
    until(lambda: host.runners == 0)


# ---- TLS ----


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with ca.pem; server.pem, client.pem and their .key; and other.pem, whom nobody has signed."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        try:
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("needs openssl")

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        openssl(
            "req",
            "-x509",
            *key,
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(
            "req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        signed = [
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
        ]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


def pair(folder, name):
    return f"cert={folder}/{name}.pem&key={folder}/{name}.key"


def test_tls_lets_in_who_trusts_the_server(serving, certificates):
    host = serving(lambda request: 1, f"{ANY}?{pair(certificates, 'server')}")
    with connect(f"{host.url}?ca={certificates}/ca.pem") as runner:
        assert runner.evaluate({"x": 1}) == 1
    for options in (f"ca={certificates}/other.pem", "tls=1"):
        with pytest.raises(NoHostError, match="(?i)certificate|handshake"):
            connect(f"{host.url}?{options}", connect_timeout=0.5)
    with pytest.raises(NoHostError):
        connect(host.url, connect_timeout=0.5)


def test_mutual_tls_lets_in_whom_the_server_trusts(serving, certificates):
    host = serving(
        lambda request: 1, f"{ANY}?{pair(certificates, 'server')}&ca={certificates}/ca.pem"
    )
    trusting = f"{host.url}?ca={certificates}/ca.pem"
    with connect(f"{trusting}&{pair(certificates, 'client')}") as runner:
        assert runner.evaluate({"x": 1}) == 1
    for own in ("", f"&{pair(certificates, 'other')}"):
        with pytest.raises(NoHostError):
            connect(trusting + own, connect_timeout=0.5)


def test_training_takes_tls_as_well(serving, certificates):
    address, both = f"grpc://localhost:{free_port()}", f"ca={certificates}/ca.pem"
    serving(lambda request: 1, f"{address}?role=client&{both}&{pair(certificates, 'client')}")
    with connect(f"{address}?role=server&{both}&{pair(certificates, 'server')}") as runner:
        assert runner.evaluate({"x": 1}) == 1


# ---- Others' programs ----


def test_the_health_service_answers(serving):
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    host = serving(lambda request: 1)
    with grpc.insecure_channel(host.url.removeprefix("grpc://")) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "shmbridge.Bridge"):
            found = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert found.status == health_pb2.HealthCheckResponse.SERVING


USER = """
    syntax = "proto3";
    package tuner;
    message Observation { repeated float costs = 1; string function = 2; }
    message Decision { int32 unroll = 1; }
    service Tuner { rpc Decide(Observation) returns (Decision); rpc Watch(Observation) returns (stream Decision); }
    service Worker { rpc getObservation(Decision) returns (Observation); }
"""


@pytest.fixture(scope="module")
def tuner(tmp_path_factory):
    """The user's own messages, made by protoc: the module tuner_pb2."""
    folder = tmp_path_factory.mktemp("tuner")
    (folder / "tuner.proto").write_text(textwrap.dedent(USER))
    try:
        subprocess.run(
            ["protoc", f"-I{folder}", f"--python_out={folder}", "tuner.proto"], check=True
        )
    except FileNotFoundError:
        pytest.skip("needs protoc")
    sys.path.insert(0, str(folder))
    yield importlib.import_module("tuner_pb2")
    sys.path.remove(str(folder))


DECIDE = "service=tuner.Tuner/Decide&messages=tuner_pb2"
OBSERVE = "service=tuner.Worker/getObservation&messages=tuner_pb2"
QUESTION = {"costs": np.arange(3, dtype=np.float32), "function": "main"}


def model_of_tuner(request):
    if request["function"] == "fail":
        raise ValueError("naïve")
    return {"unroll": np.int32(request["costs"].sum() + len(request["function"]))}


def test_a_users_own_service_and_messages(serving, tuner):
    host = serving(model_of_tuner, f"{ANY}?{DECIDE}", channels=1)
    with connect(f"{host.url}?{DECIDE}") as a, connect(f"{host.url}?{DECIDE}") as b:
        for runner in (a, b, a):  # one channel: calls know nothing of one another
            assert runner.evaluate(QUESTION) == 7
            with pytest.raises(ModelError, match="^ValueError: naïve$"):
                runner.evaluate({**QUESTION, "function": "fail"})
        with pytest.raises(MismatchError, match="no such field"):
            a.evaluate({"colour": 1})


def test_a_users_own_service_in_training(serving, tuner):
    address = f"grpc://127.0.0.1:{free_port()}"
    serving(model_of_tuner, f"{address}?role=client&{OBSERVE}")
    for _ in range(2):
        with connect(f"{address}?role=server&{OBSERVE}", deadline=20) as runner:
            assert [runner.evaluate(QUESTION) for _ in range(3)] == [7, 7, 7]
            with pytest.raises(ModelError, match="^ValueError: naïve$"):
                runner.evaluate({**QUESTION, "function": "fail"})
            assert runner.evaluate(QUESTION) == 7


def test_a_users_last_advice_arrives_though_the_trainer_closes_behind_it(tuner, in_thread):
    address = f"grpc://127.0.0.1:{free_port()}"
    with Host(f"{address}?role=client&{OBSERVE}") as host:
        asked = in_thread(ask_once, f"{address}?role=server&{OBSERVE}", QUESTION)
        for request in host:
            request.reply(**model_of_tuner(request))
            break
    assert asked.result() == 7


def test_a_users_program_without_shmbridge_asks_and_answers(serving, tuner, in_thread):
    import grpc

    host = serving(model_of_tuner, f"{ANY}?{DECIDE}")
    with grpc.insecure_channel(host.url.removeprefix("grpc://")) as channel:
        decide = channel.unary_unary(
            "/tuner.Tuner/Decide", tuner.Observation.SerializeToString, tuner.Decision.FromString
        )
        assert decide(tuner.Observation(costs=[1, 2], function="f"), timeout=10).unroll == 4
        with pytest.raises(grpc.RpcError) as caught:
            decide(tuner.Observation(function="fail"), timeout=10)
        assert (
            caught.value.code() == grpc.StatusCode.UNKNOWN
            and caught.value.details() == "ValueError: naïve"
        )

    address = f"127.0.0.1:{free_port()}"

    def train():
        with grpc.insecure_channel(address) as channel:
            ask = channel.unary_unary(
                "/tuner.Worker/getObservation",
                tuner.Decision.SerializeToString,
                tuner.Observation.FromString,
            )
            seen = ask(tuner.Decision(), timeout=20, wait_for_ready=True)
            with contextlib.suppress(grpc.RpcError):
                ask(tuner.Decision(unroll=len(seen.costs)), timeout=20)

    call = in_thread(train)
    with connect(f"grpc://{address}?role=server&{OBSERVE}") as runner:
        assert runner.evaluate(QUESTION) == 3
    call.result()


def test_a_users_deadline_is_the_calls(serving, tuner):
    go = threading.Event()
    host = serving(lambda request: go.wait(20) and {"unroll": 1}, f"{ANY}?{DECIDE}", channels=1)
    with connect(f"{host.url}?{DECIDE}", deadline=0.2) as runner:
        with pytest.raises(DeadlineError):
            runner.evaluate(QUESTION)
        go.set()
        runner.set_deadline(20)
        assert runner.evaluate(QUESTION) == 1


def test_a_stream_of_the_users_is_refused(tuner):
    with pytest.raises(UnsupportedError, match="one request and one response"):
        Host(f"{ANY}?service=tuner.Tuner/Watch&messages=tuner_pb2")


def test_importing_shmbridge_imports_no_grpc():
    code = "import shmbridge, sys; sys.exit(any(name.partition('.')[0] in ('grpc', 'grpc_health') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0


def test_serve_tells_compilers_of_a_trainer_that_they_serve(capsys):
    from shmbridge.cli.console import console
    from shmbridge.cli.serve import _introduce

    with Host(f"grpc://127.0.0.1:{free_port()}?role=client") as host:
        _introduce(console(), host, lambda features: 1, "model")
    said = capsys.readouterr().out
    assert "role=server" in said and "shmb_open" not in said

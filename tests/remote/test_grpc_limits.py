"""grpc://: what is too many, too large, or makes no sense."""

import resource
import socket
import threading
import urllib.parse

import numpy as np
import pytest
from support.grpc import ANY
from support.processes import until

from shmbridge import (
    BusyError,
    CorruptError,
    Host,
    InUseError,
    InvalidError,
    TooLargeError,
    connect,
)
from shmbridge.serdes.protobuf import Protobuf


def test_when_all_channels_are_taken_a_runner_is_told_so(serving):
    host = serving(lambda request: 1, channels=1)
    with connect(host.url) as runner:
        assert runner.evaluate({"x": 0}) == 1
        with pytest.raises(BusyError, match="channel"):
            connect(host.url, deadline=0.3)
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
    assert runner.evaluate({"n": 2}).tolist() == [0, 0]


def test_a_message_beyond_message_bytes_is_named_with_its_size(serving):
    host = serving(lambda request: np.zeros(int(request["n"])), f"{ANY}?message_bytes=8192")
    with connect(f"{host.url}?message_bytes=4096") as runner:
        with pytest.raises(TooLargeError, match=r"8192.*had 40\d\d\d bytes.*message_bytes="):
            runner.evaluate({"x": np.zeros(5000)})
        with pytest.raises(TooLargeError, match="4096.*message_bytes="):
            runner.evaluate({"n": 1000})
        assert runner.evaluate({"n": 2}).tolist() == [0, 0]


@pytest.mark.parametrize(
    "url, text",
    [
        ("grpc://h:1?colour=red", "no option colour"),
        ("grpc://h:1?role=both", "expected server or client"),
        *((f"grpc://h:1?{each}", "both cert=") for each in ("role=server&ca=x", "cert=x")),
        ("grpc://h:1?message_bytes=many", "expected a number"),
        ("grpc://h:1?message_bytes=0", "expected 1 or more"),
        ("grpc://h:1?service=a.B/c&messages=no_such_module", "which can be imported"),
        *((f"grpc://{each}", "expected grpc://") for each in ("", "h:1,h:2")),
        *((f"grpc://{each}", "HOST:PORT") for each in ("h", "h:port", "h:65536", ":1")),
        ("grpc://unix:/no/such/folder/s?role=server", "a folder that may be written to"),
        ("grpc://h:1?ca=/no/such.pem&cert=/no&key=/no", "expected a file in PEM"),
    ],
)
def test_options_that_make_no_sense_are_refused_on_both_sides(url, text):
    for make in (Host, lambda url: connect(url, connect_timeout=0)):
        with pytest.raises(InvalidError, match=text):
            make(url)


def test_a_port_or_a_socket_is_one_servers(serving, tmp_path):
    for url in f"grpc://unix:{tmp_path}/socket", ANY:
        host = serving(lambda request: 1, url)
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


def test_bytes_that_are_no_message_are_answered_with_a_failure(serving):
    import grpc

    host = serving(lambda request: 1)
    with grpc.insecure_channel(host.url.removeprefix("grpc://")) as channel:
        ask = channel.stream_stream("/shmbridge.Bridge/getAdvice")
        garbage = [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x07"]  # the second claims 2 GB
        replies = list(ask(iter([*garbage, Protobuf().encode_request({"x": 1}, None)]), timeout=30))
    for reply in replies[:2]:
        with pytest.raises(CorruptError, match="expected the bytes of a protobuf message"):
            Protobuf().decode_advice(reply, None)
    assert Protobuf().decode_advice(replies[2], None)["advice"] == 1


def test_a_thousand_silent_clients_keep_nobody_out(serving):
    """A third of them have begun to speak HTTP/2, a third have said something else. They are in
    this process, as is the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("needs 4096 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    host, silent = serving(lambda request: request["x"] + 1), []
    address = urllib.parse.urlsplit(host.url)
    try:
        for i in range(1000):
            silent.append(socket.create_connection((address.hostname, address.port), 10))
            said = b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"\xff" * 99
            silent[-1].sendall(said[i % 3])
        threads = threading.active_count()
        with connect(host.url) as runner:
            assert [runner.evaluate({"x": i}) for i in range(3)] == [1, 2, 3]
        assert host.runners <= 1 and threads < 50
    finally:
        for each in silent:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_calls_one_after_another_share_threads_which_end_with_the_server():
    from shmbridge._grpc.wire import _Threads

    threads, before = _Threads(), threading.active_count()
    for i in range(200):
        assert threads.submit(int, i).result(10) == i
    assert threading.active_count() - before < 20
    threads.shutdown()
    until(lambda: threading.active_count() <= before)

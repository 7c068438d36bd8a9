"""ML-Compiler-Bridge's Python package, PyPI `compilerinterface`, as the host of our runners; our host for a client of its
protocol that has nothing of ours; and each fault that it is known for, as a test that ours passes.
"""

import ctypes
import inspect
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import shmbridge
from shmbridge import (
    DeadlineError,
    Host,
    HostGoneError,
    ModelError,
    TensorSpec,
    UnsupportedError,
    connect,
)

PEERS = Path(__file__).parent
LARGE = 400_000
Theirs = {"bitstream": "bytes", "json": "json"}

# What its test programs exchange: what is sent, the dtype wanted back, and the reply.
EXCHANGES = [
    (np.int32(11), np.int32, 12),
    (np.int64(1234567890), np.int64, ctypes.c_long(1234567891)),
    (np.float32(3.14), np.float32, 4.14),
    (np.float64(0.123456789123456789), np.float64, ctypes.c_double(1.123456789123456789)),
    (np.int8(ord("a")), np.int32, ord("b")),
    (np.bool_(True), np.bool_, False),
    (np.array([11, 22, 33], np.int32), np.int32, [12, 23, 34]),
    (np.array([123456780, 222, 333]), np.int64, [ctypes.c_long(123456780 + i) for i in range(3)]),
    (np.array([11.1, 22.2, 33.3], np.float32), np.float32, [1.11, 2.22, -3.33, 0.0]),
    (
        np.array([-1.1, -2.2, -3.3]),
        np.float64,
        list(map(ctypes.c_double, (1.1234567891234567, -1.12345678912345671))),
    ),
    (np.array([((i - 20) / 100) ** 2 for i in range(100)], np.float32), np.int32, 20),
]


def plain(reply):
    """A reply as numbers."""
    return (
        [plain(each) for each in reply]
        if isinstance(reply, list)
        else getattr(reply, "value", reply)
    )


class TheirHost(threading.Thread):
    """Their host, which answers the exchanges in order; .asked: what came, as it hands it out."""

    def __init__(self, path, serdes):
        from compilerinterface import PipeCompilerInterface

        super().__init__(daemon=True)
        self.interface, self.asked = PipeCompilerInterface(Theirs[serdes], str(path)), []
        self.start()

    def run(self):
        self.interface.reset_pipes()
        for _, _, reply in EXCHANGES:
            request = self.interface.evaluate()
            self.asked.append(request["x"] if isinstance(request, dict) else list(request[0]))
            self.interface.populate_buffer(reply)
        self.interface.evaluate("exit")

    def end(self):
        self.join(20)
        assert not self.is_alive()
        self.interface.close_pipes()
        assert len(self.asked) == len(EXCHANGES)
        for (sent, _, _), found in zip(EXCHANGES, self.asked, strict=True):
            assert np.allclose(
                np.ravel(found).astype(float), np.ravel(sent).astype(float), rtol=0, atol=1e-5
            )


@pytest.fixture(params=["bitstream", "json"])
def serdes(request):
    return request.param


@pytest.fixture
def theirs(tmp_path, serdes):
    pytest.importorskip("compilerinterface")
    return TheirHost(tmp_path / "p", serdes)


# ---- Their host, our runners ----


def test_their_host_answers_our_c_runner(theirs, tmp_path, serdes, c_program):
    program = c_program(PEERS / "exchange_runner.c")
    url = f"pipe://{tmp_path}/p?serdes={serdes}&deadline=20"
    out = subprocess.run([program, url], capture_output=True, text=True, timeout=60)
    assert (out.stdout, out.stderr) == ("ok\n", "")
    theirs.end()


def test_their_host_answers_our_python_runner(theirs, tmp_path, serdes):
    with connect(f"pipe://{tmp_path}/p?serdes={serdes}", deadline=20) as runner:
        for value, dtype, reply in EXCHANGES:
            advice = runner.evaluate({"x": value}, dtype=dtype)
            assert np.asarray(advice).dtype == dtype or isinstance(advice, (int, float, bool))
            assert np.allclose(np.ravel(advice), np.ravel(plain(reply)), rtol=0, atol=1e-5)
            assert np.size(advice) == np.size(plain(reply))
    theirs.end()


# ---- A client of the protocol, our host ----


def answer(request):
    """The published replies, by what was asked."""
    x = request["x"]
    if x.size > 100:
        return x
    if x.size == 100:
        return np.int32(np.argmax(2 - x))
    if x.size == 1:
        if x.dtype == np.bool_ or x.dtype == np.uint8:
            return np.bool_(False)
        return np.ravel(x + x.dtype.type(1))[0]
    if x.dtype == np.float32 or (x.dtype == np.float64 and x[0] > 0):
        return np.array([1.11, 2.22, -3.33, 0], x.dtype)
    if x.dtype == np.float64:
        return np.array([1.1234567891234567, -1.12345678912345671])
    return x + x.dtype.type(1) if x[0] == 11 else x[0] + np.arange(3)


def typed(request):
    """The same for a client that wants the argmax as a float, as its request is one."""
    advice = answer(request)
    return np.float32(advice) if request["x"].size == 100 else advice


@pytest.fixture
def client(c_program):
    program = c_program(PEERS / "pipe_client.c")
    return lambda *args: subprocess.run(
        [program, *map(str, args)], capture_output=True, text=True, timeout=60
    )


def test_our_host_answers_a_client_written_from_the_description(
    serdes, tmp_path, client, in_thread
):
    url = f"pipe://{tmp_path}/p?serdes={serdes}"
    with Host(url, request_bytes=8 * LARGE + 4096, advice_bytes=8 * LARGE + 4096) as host:
        serving = in_thread(host.serve, typed)
        for large in ((), ("large",), ()):  # one after another
            out = client(tmp_path / "p", serdes, *large)
            assert (out.stdout, out.stderr) == ("ok\n", "")
        host.close()
        serving.result()


def test_a_client_that_wants_an_int_gets_one_by_spec(tmp_path, in_thread):
    """What Python calls an int has 8 bytes; that client's has 4."""
    with Host(f"pipe://{tmp_path}/p", advice=[TensorSpec("advice", np.int32)]) as host:
        serving = in_thread(host.serve, lambda request: 12)
        with (
            open(tmp_path / "p.in", "rb", buffering=0) as replies,
            open(tmp_path / "p.out", "wb", buffering=0) as requests,
        ):
            body = (
                b'{"features":[{"name":"x","type":"int32_t","port":6020,"shape":[1]}]}\n'
                + bytes([11, 0, 0, 0])
                + b"\n"
            )
            requests.write(len(body).to_bytes(8, "little") + body)
            assert replies.read(12) == bytes([4, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0])
        host.close()
        serving.result()


# ---- Its known faults ----


@pytest.fixture
def pair(tmp_path, in_thread):
    """pair(model, serdes, dtype): what a runner of ours gets from a host of ours."""

    def ask(model, serdes="bitstream", dtype=None):
        url = f"pipe://{tmp_path}/p?serdes={serdes}"
        with Host(url) as host:
            serving = in_thread(host.serve, model)
            try:
                with connect(url, deadline=20) as runner:
                    return runner.evaluate({"x": np.arange(3)}, dtype=dtype)
            finally:
                host.close()
                serving.result()

    return ask


@pytest.fixture
def their_bytes():
    """their_bytes(value): what their bitstream SerDes makes of it."""
    module = pytest.importorskip("compilerinterface")

    def serialize(value, data_format="bytes"):
        serdes = module.SerDes(data_format)
        serdes.serializeData(value)
        return serdes.getOutputBuffer()[8:]

    return serialize


def test_every_wait_has_a_deadline(tmp_path):
    url = f"pipe://{tmp_path}/p"
    with pytest.raises(shmbridge.NoHostError):
        connect(url, connect_timeout=0.01)
    with Host(url) as host:
        assert host.receive(timeout=0.01) is None
        with connect(url, deadline=0.01) as runner, pytest.raises(DeadlineError):
            runner.evaluate({"x": 1})


def test_theirs_has_none():
    module = pytest.importorskip("compilerinterface")
    assert "timeout" not in inspect.signature(module.PipeCompilerInterface.evaluate).parameters


def test_an_end_of_file_ends_the_conversation_and_not_the_host(tmp_path, in_thread):
    url = f"pipe://{tmp_path}/p"
    with Host(url) as host:
        runner = connect(url)
        asking = in_thread(lambda: runner.evaluate({"x": 1}))
        request = host.receive(20)
        host.close()
        with pytest.raises(HostGoneError):
            asking.result()
        runner.close()
        with pytest.raises(shmbridge.ShmbridgeError):
            request.reply(1)


def test_theirs_fails_at_an_end_of_file(tmp_path):
    module = pytest.importorskip("compilerinterface")
    interface = module.PipeCompilerInterface("json", str(tmp_path / "p"))
    opening = threading.Thread(target=interface.reset_pipes)
    opening.start()
    with open(tmp_path / "p.in", "rb"), open(tmp_path / "p.out", "wb"):
        opening.join(20)
    with pytest.raises(ValueError):  # of json, about an empty text
        interface.evaluate()


def test_a_second_episode_is_as_good_as_the_first(tmp_path, in_thread):
    url = f"pipe://{tmp_path}/p"
    for _ in range(2):  # a clean restart of the host
        with Host(url) as host:
            serving = in_thread(host.serve, lambda request: request["x"] + 1)
            for _ in range(2):  # and of the compiler
                with connect(url, deadline=20) as runner:
                    for i in range(3):
                        assert runner.evaluate({"x": i}, dtype=np.int64) == [i + 1]
            host.close()
            serving.result()


@pytest.mark.parametrize(
    "value", [np.int64(5), np.float32(2.5), np.arange(6).reshape(2, 3), np.ones(3, np.float32)]
)
def test_numpy_values_are_replies(pair, their_bytes, value):
    assert np.array_equal(np.ravel(pair(lambda request: value, dtype=value.dtype)), np.ravel(value))
    with pytest.raises(TypeError):
        their_bytes(value)
    with pytest.raises(TypeError):
        their_bytes(value, "json")


@pytest.mark.parametrize("value", [2**31, 2**63 - 1, -(2**63)])
def test_large_integers_are_replies(pair, their_bytes, value):
    assert pair(lambda request: value, dtype=np.int64) == [value]
    assert pair(lambda request: value, "json", np.int64) == value
    with pytest.raises(struct.error):
        their_bytes(value)


def test_a_list_of_integers_and_floats_is_never_mixed(pair, their_bytes):
    """Both sides are told to convert it. Theirs sends 4 bytes of an int and 4 of a float."""
    with pytest.raises(ModelError, match="expected a list of one type"):
        pair(lambda request: [1, 2.5])
    assert pair(lambda request: np.array([1, 2.5]), dtype=np.float64).tolist() == [1, 2.5]
    assert their_bytes([1, 2.5]) == np.int32(1).tobytes() + np.float32(2.5).tobytes()


def test_a_ragged_list_is_not_flattened(pair, their_bytes):
    """Where the format has no lists of rows, both sides are told."""
    with pytest.raises(UnsupportedError, match="lists of rows"):
        pair(lambda request: [[1, 2], [3]])
    assert [row.tolist() for row in pair(lambda request: [[1, 2], [3]], "json")] == [[1, 2], [3]]
    assert their_bytes([[1, 2], [3]]) == their_bytes([1, 2, 3])


def test_a_negative_index_counts_from_the_end(pair):
    assert pair(lambda request: request["x"][-1], dtype=np.int64) == [2]


def test_theirs_has_no_negative_index():
    module = pytest.importorskip("compilerinterface.log_reader")
    spec = module.TensorSpec("x", 0, [3], ctypes.c_int32)
    with pytest.raises(IndexError):
        module.TensorValue(spec, np.arange(3, dtype=np.int32).tobytes())[-1]


def without_grpc(code):
    code = "import sys; sys.modules['grpc'] = None\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd="/"
    )


def test_no_grpc_is_needed(tmp_path):
    out = without_grpc(f"""
        import shmbridge
        with shmbridge.Host("pipe://{tmp_path}/p") as host:
            print(host.url)
    """)
    assert out.stdout == f"pipe://{tmp_path}/p\n", out.stderr


def test_theirs_needs_it():
    pytest.importorskip("compilerinterface")
    assert "ModuleNotFoundError" in without_grpc("import compilerinterface").stderr

"""Each fault that ML-Compiler-Bridge's Python package is known for, as a test that ours passes."""

import ctypes
import inspect
import struct
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import shmbridge
from shmbridge import DeadlineError, Host, HostGoneError, ModelError, connect


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
    assert pair(lambda request: value, dtype=np.int64) == value
    assert pair(lambda request: value, "json", np.int64) == value
    with pytest.raises(struct.error):
        their_bytes(value)


def test_a_list_of_integers_and_floats_is_never_mixed(pair, their_bytes):
    """Both sides are told to convert it. Theirs sends 4 bytes of an int and 4 of a float."""
    with pytest.raises(ModelError, match="expected a list of one type"):
        pair(lambda request: [1, 2.5])
    assert pair(lambda request: np.array([1, 2.5]), dtype=np.float64).tolist() == [1, 2.5]
    assert their_bytes([1, 2.5]) == np.int32(1).tobytes() + np.float32(2.5).tobytes()


def test_a_ragged_list_is_not_flattened(pair, sent, their_bytes):
    """A client of theirs, whose format has no lists of rows, is told."""
    assert b"lists of rows" in sent(lambda request: [[1, 2], [3]])[1]
    for serdes in ("bitstream", "json"):
        assert [row.tolist() for row in pair(lambda request: [[1, 2], [3]], serdes)] == [
            [1, 2],
            [3],
        ]
    assert their_bytes([[1, 2], [3]]) == their_bytes([1, 2, 3])


def test_a_negative_index_counts_from_the_end(pair):
    assert pair(lambda request: request["x"][-1], dtype=np.int64) == 2


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

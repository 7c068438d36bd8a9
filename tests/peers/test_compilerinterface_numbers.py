"""Numbers between ML-Compiler-Bridge's Python package and us: byte for byte what its host sends,
and either width for our runners."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import printed

import shmbridge
from shmbridge import TensorSpec, connect
from shmbridge.hosts.pipe import narrowed

PEERS = Path(__file__).parent


def test_a_published_reply_in_plain_numbers_byte_for_byte(sent):
    assert sent(lambda request: 12) == bytes.fromhex("0c000000")
    assert sent(lambda request: 4.14) == bytes.fromhex("e17a8440")
    assert sent(lambda request: False) == bytes(4)
    assert sent(lambda request: [12, 23, 34]) == bytes.fromhex("0c0000001700000022000000")
    assert sent(lambda request: [1.11, 2.22, -3.33, 0.0]) == bytes.fromhex(
        "7b148e3f7b140e40b81e55c000000000"
    )
    assert sent(lambda request: [True, False]) == bytes.fromhex("0100000000000000")
    assert sent(lambda request: [0, 2.5]) == bytes.fromhex("0000000000002040")
    assert sent(lambda request: np.int64(1234567891)) == bytes.fromhex("d302964900000000")
    assert sent(lambda request: np.array([-1.5])) == bytes.fromhex("000000000000f8bf")


@given(
    st.one_of(st.integers(-(2**31), 2**31 - 1), st.floats(width=64)).flatmap(
        lambda x: st.sampled_from([x, [x], [x, x]])
    )
)
def test_any_plain_number_has_their_bytes(value):
    serdes = pytest.importorskip("compilerinterface").SerDes("bytes")
    try:
        serdes.serializeData(value)
    except OverflowError:  # a float beyond float32
        with pytest.raises(shmbridge.InvalidError, match="float64"):
            narrowed("advice", value)
    else:
        assert narrowed("advice", value).tobytes() == serdes.getOutputBuffer()[8:]


@pytest.mark.parametrize(
    "value",
    [np.int64(5), np.float64(2.5), np.arange(3), np.ones(2), [np.float64(1), np.float64(2)]],
    ids=repr,
)
def test_numpys_numbers_keep_their_dtype(sent, value):
    assert sent(lambda request: value) == np.asarray(value).tobytes()


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, [1, 2**31]])
def test_an_int_beyond_int32_is_an_error_that_says_how_to_send_int64(sent, value):
    length, body = sent(lambda request: value)
    assert length >> 63 and b"reply numpy.int64(...)" in body


def test_a_list_of_two_types_or_of_rows_is_an_error(sent):
    """Their package mixes or flattens them."""
    assert b"expected a list of one type" in sent(lambda request: [1, np.float64(2.5), "x"])[1]
    assert b"lists of rows" in sent(lambda request: [[1, 2], [3]])[1]


def test_a_spec_says_what_plain_numbers_are(sent):
    assert (
        sent(lambda request: 12, advice=[TensorSpec("advice", np.int64)]) == np.int64(12).tobytes()
    )


def test_a_plain_number_is_exact_for_our_runners(pair):
    assert pair(lambda request: 0.1) == 0.1
    assert pair(lambda request: 2**40) == 2**40
    assert pair(lambda request: [2**40, 1]).tolist() == [2**40, 1]


@pytest.fixture
def replying(tmp_path, in_thread):
    """replying(value): their host, which answers two questions with it; returns the URL."""

    def start(value, serdes="bytes"):
        interface = pytest.importorskip("compilerinterface").PipeCompilerInterface(
            serdes, str(tmp_path / "q")
        )

        def serve():
            interface.reset_pipes()
            for _ in range(2):
                asked = interface.evaluate()
                assert serdes == "bytes" or asked == {"x": 1}
                interface.populate_buffer(value)
            interface.evaluate("exit")

        in_thread(serve)
        query = "&serdes=json" if serdes == "json" else ""
        return f"pipe://{tmp_path}/q?deadline=20{query}"

    return start


INEXACT = '16 the advice "advice" of int64 is not exactly representable as int32: ask for int64'


@pytest.mark.parametrize(
    ("value", "letter", "expected"),
    [
        *((12, letter, "12 12 ") for letter in "il"),
        *((2.5, letter, "2.5 2.5 ") for letter in "fd"),
        (ctypes.c_long(7), "i", "7 7 "),
        (ctypes.c_long(2**40), "l", "1099511627776 1099511627776 "),
        (ctypes.c_double(0.1), "d", "0.10000000000000001 0.10000000000000001 "),
        (ctypes.c_double(0.5), "f", "0.5 0.5 "),
        (ctypes.c_long(2**40), "i", INEXACT * 2),
    ],
)
@pytest.mark.parametrize("retries", ["", "&retries=1"])
def test_c_reads_one_number_of_either_width(replying, c_program, value, letter, expected, retries):
    program = c_program(PEERS / "scalar_runner.c")
    out = printed([program, replying(value) + retries, letter])
    assert (out.stdout, out.stderr.count("\n")) == (expected, int("not exactly" in expected))


@pytest.mark.parametrize("serdes", ["bytes", "json"])
@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (12, np.int32, 12),
        ([12, 23, 34], np.int32, [12, 23, 34]),
        ([1.5, 2.5, -3.5, 0.0], np.float32, [1.5, 2.5, -3.5, 0.0]),
        ([ctypes.c_long(2**40), ctypes.c_long(1)], np.int64, [2**40, 1]),
        ([ctypes.c_double(0.1), ctypes.c_double(-0.2)], np.float64, [0.1, -0.2]),
    ],
)
def test_their_hosts_numbers_and_lists_are_read(replying, value, dtype, expected, serdes):
    with connect(replying(value, serdes)) as runner:
        for _ in range(2):
            found = np.asarray(runner.evaluate({"x": 1}, dtype=dtype))
            assert found.tolist() == expected and found.dtype.kind == np.dtype(dtype).kind


def test_their_host_tells_no_dtype_and_so_one_must_be_asked_for(replying):
    with connect(replying(12)) as runner:
        with pytest.raises(shmbridge.MismatchError, match="evaluate\\(..., dtype=\\)"):
            runner.evaluate({"x": 1})
        assert runner.evaluate({"x": 1}, dtype=np.int32) == 12

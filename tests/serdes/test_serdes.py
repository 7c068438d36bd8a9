"""Every SerDes: what goes in comes out, as a Python object and as the C core calls it; bytes that
are no message are errors."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values import arrays, many, names, ragged, texts

import shmbridge
from shmbridge import (
    CorruptError,
    InexactError,
    InvalidError,
    Ragged,
    ShmbridgeError,
    StringList,
    UnsupportedError,
    serdes,
)
from shmbridge._native import lib
from shmbridge._runner import urls
from shmbridge._urls import plugins
from shmbridge._values import dtypes, tensor
from shmbridge.serdes import SerDes, _core
from shmbridge.serdes._core import Core

# ---- Messages ----


numbers = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats())
values = st.one_of(
    arrays(max_rank=4), numbers, texts, st.lists(texts, max_size=4).map(StringList), ragged()
)
messages = st.dictionaries(names, values, max_size=5)


def identical(found, sent):
    """The same names in the same order, each of the same dtype, kind, shape, bytes and offsets."""
    assert list(found) == list(sent)
    for name, value in sent.items():
        a, b = tensor.as_field(name, found[name]), tensor.as_field(name, value)
        assert (a.code, a.kind, a.dims) == (b.code, b.kind, b.dims), name
        assert a.values.tobytes() == b.values.tobytes(), name
        assert (a.offsets is None) == (b.offsets is None) and (
            a.offsets is None or np.array_equal(a.offsets, b.offsets)
        )
        assert isinstance(found[name], (np.ndarray, np.generic, str, StringList, Ragged))
    return True


# ---- Those that take every message: as Python calls them, and as C does ----


class Toy(SerDes):
    """Any message, by pickle, whose only merit is that it is there."""

    def encode(self, fields):
        import pickle

        plain = {
            name: (f.code, f.kind, f.values.tobytes(), f.values.shape, f.offsets)
            for name, f in ((name, tensor.as_field(name, value)) for name, value in fields.items())
        }
        return pickle.dumps(plain)

    def decode(self, data):
        import pickle

        made = {}
        for name, (code, kind, raw, shape, offsets) in pickle.loads(data).items():
            array = np.frombuffer(raw, np.uint8).view(dtypes.dtype_of(code)).reshape(shape)
            made[name] = {
                lib.SHMB_TENSOR: lambda a, o: a[()],
                lib.SHMB_STRING: lambda a, o: tensor.text_of(a),
                lib.SHMB_STRINGS: tensor.texts_of,
                lib.SHMB_RAGGED: Ragged,
            }[kind](array, offsets)
        return made


_core.register("toy", Toy())


def _made(name, caller):
    """The SerDes itself, or the C core's view of it."""
    if caller == "C":
        return Core(serdes.ensure(name))
    return Toy() if name == "toy" else serdes.find(name)


@pytest.fixture(
    scope="module", params=["toy-C", "toy-Python", "protobuf-C", "protobuf-Python", "flatbuffers-C"]
)
def lossless(request):
    return _made(*request.param.split("-"))


@many
@given(messages)
def test_a_request_comes_back_as_it_was(lossless, message):
    with np.errstate(invalid="ignore"):
        assert identical(lossless.decode(lossless.encode(message)), message)


@many
@given(messages)
def test_advice_comes_back_as_it_was(lossless, message):
    with np.errstate(invalid="ignore"):
        assert identical(lossless.decode_advice(lossless.encode_advice(message), None), message)


@many
@given(st.sampled_from(["protobuf", "flatbuffers"]), messages, st.data())
def test_mutated_bytes_are_a_message_or_an_error(name, message, data):
    some = serdes.find(name)
    with np.errstate(invalid="ignore"):
        sent = bytearray(some.encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(sent)))
        sent[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    check_survives(some, bytes(sent))


def check_survives(some, data):
    """Decoding gives fields that make sense, or a ShmbridgeError."""
    for decode in (some.decode, lambda data: some.decode_advice(data, None)):
        try:
            found = decode(data)
        except ShmbridgeError as error:
            assert str(error)
        else:
            for name, value in found.items():
                tensor.as_field(name, value)


@many
@given(st.sampled_from(["bitstream", "json", "flatbuffers", "protobuf"]), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(name, data):
    check_survives(serdes.find(name), data)


# ---- The wanted dtype ----


@pytest.mark.parametrize("name", ["protobuf", "flatbuffers"])
def test_a_request_says_which_dtype_it_wants(name):
    for some in (_made(name, "Python"), _made(name, "C")):
        for want in (None, np.dtype("f4"), np.dtype("u8")):
            fields, found = some.decode_request(some.encode_request({"x": 1}, want))
            assert found == want and fields == {"x": 1}


@pytest.mark.parametrize("name", ["toy", "protobuf", "json"])
def test_advice_is_made_the_wanted_dtype_where_that_is_exact(name):
    some = _made(name, "C")
    data = some.encode_advice({"advice": 3})
    for want in ("i1", "u8", "f2", "f8"):
        (found,) = some.decode_advice(data, np.dtype(want)).values()
        assert found == 3 and found.dtype == want
    with pytest.raises((InexactError, shmbridge.MismatchError)):
        some.decode_advice(some.encode_advice({"advice": 2.5}), np.dtype("i4"))
    with pytest.raises((InexactError, shmbridge.MismatchError)):
        some.decode_advice(some.encode_advice({"advice": 300}), np.dtype("u1"))
    with pytest.raises((InexactError, shmbridge.MismatchError)):
        some.decode_advice(some.encode_advice({"advice": "text"}), np.dtype("i4"))


# ---- A SerDes in Python, called by C ----


class Failing(SerDes):
    """Raises what it is told."""

    error = None
    encoded = b""
    decoded = {}

    def encode(self, fields):
        if self.error is not None:
            raise self.error
        return self.encoded

    def decode(self, data):
        if self.error is not None:
            raise self.error
        return self.decoded


_failing = Failing()
_core.register("failing", _failing)


@pytest.fixture
def failing(capfd):
    """A registered SerDes, and C's view of it; nothing may be printed."""
    _failing.__dict__.clear()
    yield _failing, Core("failing")
    _failing.__dict__.clear()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "in_encode", "in_decode", "says"),
    [
        (KeyError("x"), InvalidError, CorruptError, "KeyError: 'x'"),
        (ValueError("why"), InvalidError, CorruptError, "ValueError: why"),
        (RecursionError("deep"), InvalidError, CorruptError, "RecursionError: deep"),
        (MemoryError("all"), shmbridge.NoMemoryError, shmbridge.NoMemoryError, "MemoryError: all"),
        *((kind("so"), kind, kind, "so") for kind in (InexactError, CorruptError)),
        *((kind(), kind, kind, "") for kind in (KeyboardInterrupt, SystemExit)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_serdes_raises_is_the_error_of_the_call(failing, error, in_encode, in_decode, says):
    made, seen = failing
    made.error = error
    with pytest.raises(in_encode) as caught:
        seen.encode({"x": 1})
    assert type(caught.value) is in_encode and str(caught.value).endswith(says)
    with pytest.raises(in_decode) as caught:
        seen.decode(b"data")
    assert type(caught.value) is in_decode and str(caught.value).endswith(says)
    made.error = None
    assert seen.encode({}) == b"" and seen.decode(b"") == {}


@pytest.mark.parametrize("encoded", ["text", None, 5, ["x"]])
def test_what_is_no_bytes_is_refused(failing, encoded):
    made, seen = failing
    made.encoded = encoded
    with pytest.raises(InvalidError, match="expected bytes of Failing, found"):
        seen.encode({"x": 1})


@pytest.mark.parametrize(
    ("decoded", "says"),
    [
        ({"x": object()}, '"x": expected a number'),
        ({"": 1}, "expected a name"),
        ({"x": [1, 2.5]}, "one type"),
        ({"x": Ragged(np.ones(3), np.array([0, 9]))}, "offsets"),
        (5, "AttributeError"),
        (None, "AttributeError"),
    ],
)
def test_what_is_no_message_is_refused(failing, decoded, says):
    made, seen = failing
    made.decoded = decoded
    with pytest.raises(ShmbridgeError) as caught:
        seen.decode(b"data")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "encoded", [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a-b-c-")[::2]]
)
def test_any_buffer_is_bytes(failing, encoded):
    made, seen = failing
    made.encoded = encoded
    assert seen.encode({}) == b"abc"


def test_what_a_serdes_keeps_stays_as_it_was(failing):
    made, seen = failing
    kept = []
    made.encode = lambda fields: kept.append(fields) or b""
    made.decode = lambda data: kept.append(data) or {}
    seen.encode({"x": np.arange(1000)})
    seen.decode(b"first")
    for _ in range(10):
        seen.encode({"x": np.zeros(1000)})
        seen.decode(b"other")
    assert kept[0]["x"].tolist() == list(range(1000)) and kept[1] == b"first"


def test_several_threads_use_one_serdes_at_once(in_thread):
    start = threading.Barrier(4)

    def work(i):
        seen = Core("toy")
        start.wait(60)
        for _ in range(200):
            assert seen.decode(seen.encode({"x": np.full(100, i)}))["x"].tolist() == [i] * 100
        return i

    calls = [in_thread(work, i) for i in range(4)]
    assert [call.result() for call in calls] == [0, 1, 2, 3]


# ---- By name ----


def test_serdes_are_found_by_name():
    for name in ("bitstream", "flatbuffers", "json", "protobuf"):
        assert isinstance(serdes.find(name), SerDes)
    with pytest.raises(
        UnsupportedError,
        match="no SerDes is called 'nothing': expected one of bitstream, .*protobuf",
    ):
        serdes.find("nothing")


def test_options_that_a_serdes_does_not_have_are_refused():
    with pytest.raises(InvalidError, match="'json' .*'indent': '2'}, of none: TypeError"):
        serdes.find("json", indent="2")
    with pytest.raises(
        InvalidError, match="'protobuf' .*'colour': 'red'}, of advice, request: TypeError"
    ):
        serdes.find("protobuf", colour="red")


def test_an_option_of_a_wrong_value_is_refused(monkeypatch):
    class Picky(SerDes):
        def __init__(self, indent="2"):
            int(indent)

    monkeypatch.setattr(plugins, "find", lambda *_: Picky)
    monkeypatch.setattr(serdes, "_loaded", {})
    with pytest.raises(InvalidError, match="'picky' .*'indent': 'x'.*ValueError: invalid literal"):
        serdes.find("picky", indent="x")


def test_a_url_is_made_what_the_core_understands():
    for url in [
        "x",
        "shm://x",
        "pipe:///x",
        "pipe:///x?serdes=json",
        "pipe:///x?connect_timeout=1&serdes=json&wait=spin",
        "pipe:///x?a",
    ]:
        assert urls.resolve(url) == url
    assert (
        urls.resolve("pipe:///x?serdes=protobuf&connect_timeout=1")
        == "pipe:///x?serdes=protobuf&connect_timeout=1"
    )
    message = "shmbridge._generated.bridge_pb2:DType"
    with pytest.raises(InvalidError, match="message class"):
        urls.resolve(f"pipe:///x?serdes=protobuf&request={message}")
    with pytest.raises(UnsupportedError, match="nothing"):
        urls.resolve("pipe:///x?serdes=nothing")


def test_using_a_serdes_of_the_core_imports_no_protobuf(python):
    code = """
        import sys
        from shmbridge import serdes
        serdes.find("json")
        print("google.protobuf" in sys.modules, "importlib.metadata" in sys.modules)
    """
    assert python(code).end() == (0, "False False")


def test_a_missing_protobuf_says_what_to_install(python, tmp_path):
    (tmp_path / "google").mkdir()
    (tmp_path / "google/__init__.py").write_text("raise ImportError('no protobuf here')")
    code = """
        import sys
        from shmbridge import connect
        try: connect("pipe:///x?serdes=protobuf")
        except Exception as error: print(type(error).__name__, error)
    """
    status, said = python(code, env={"PYTHONPATH": str(tmp_path)}).end()
    assert (
        status == 0
        and said.startswith("UnsupportedError")
        and "pip install shmbridge[protobuf]" in said
    ), said

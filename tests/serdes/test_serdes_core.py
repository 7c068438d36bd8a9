"""The C core's SerDes against readers and writers that share nothing with it: json and struct of
Python, compilerinterface's. tests/c/serdes/ has their bytes, and what is malformed."""

import importlib.util
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support import header
from support.values import arrays, many, names, texts
from test_serdes import identical, messages

from shmbridge import InvalidError, Ragged, ShmbridgeError, StringList, UnsupportedError, serdes
from shmbridge._values import tensor

js, bits, flat = (serdes.find(name) for name in ("json", "bitstream", "flatbuffers"))
whole = st.integers(-(2**63), 2**64 - 1)


# ---- JSON ----


@many
@given(messages)
def test_pythons_json_reads_a_request(message):
    with np.errstate(invalid="ignore"):
        found = json.loads(js.encode(message).decode(errors="surrogatepass"))
    assert list(found) == list(message)
    for name, value in message.items():
        field = tensor.as_field(name, value)
        if isinstance(value, (str, StringList)):
            assert found[name] == value
        elif isinstance(value, Ragged):
            assert [len(row) for row in found[name]] == [len(row) for row in value]
            assert same_numbers(
                [number for row in found[name] for number in flat_list(row)], field.values.ravel()
            )
        else:
            assert (
                np.shape(found[name])[: field.values.ndim]
                == field.values.shape[: np.ndim(found[name])]
            )
            assert same_numbers(found[name], field.values)


def flat_list(value):
    return (
        [number for item in value for number in flat_list(item)]
        if isinstance(value, list)
        else [value]
    )


def same_numbers(found, values):
    """The same where rounded to the values' dtype; NaN is NaN."""
    with np.errstate(all="ignore"):
        back = (
            np.array(found, object).astype(values.dtype)
            if np.size(found)
            else np.zeros(values.shape, values.dtype)
        )
    return bool(np.all((back == values) | ((back != back) & (values != values))))


# Anything that Python's json writes of lists, numbers and text.
leaves = st.one_of(st.booleans(), st.integers(-(2**65), 2**65), st.floats(), texts, st.none())
alike = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1), st.floats(), texts
)
nested = st.one_of(
    st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=8),
    alike.flatmap(lambda leaf: st.lists(st.lists(st.just(leaf), max_size=3), max_size=3)),
    st.lists(whole, max_size=4),
    st.lists(st.floats(), max_size=4),
    st.lists(st.lists(st.floats(), min_size=2, max_size=2), max_size=4),
)


@many
@given(nested)
@example([[1], [], [2, 3]])
@example([2**63, -1])
@example([0, 2**63])
@example([[1], [2**64 - 1, 0]])
@example([2**64])
@example([1, 2.5])
@example([True, 1])
@example([["a"]])
def test_what_python_writes_is_read_as_the_same_tensor_or_both_refuse(value):
    try:
        expected = tensor.as_field("x", value)
    except InvalidError:
        expected = None
    data = json.dumps({"x": value}).encode()
    try:
        found = js.decode(data)
    except ShmbridgeError as error:
        assert '"x"' in str(error)
        assert expected is None, (value, str(error))
        return
    # Whole numbers beside decimals: many writers print 0.0 as 0.
    if expected is None and flat_list(value):
        values = tensor.as_field("x", found["x"]).values
        assert {type(leaf) for leaf in flat_list(value)} == {int, float} and values.dtype == float
        assert np.array_equal(values.ravel(), flat_list(value), equal_nan=True)
        return
    if expected is None:
        return  # lists of nothing of unequal depth
    field = tensor.as_field("x", found["x"])
    assert (field.code, field.kind, field.dims) == (expected.code, expected.kind, expected.dims)
    assert np.array_equal(
        field.values, expected.values, equal_nan=expected.values.dtype.kind == "f"
    )
    assert (
        np.array_equal(
            np.signbit(field.values.astype(float)), np.signbit(expected.values.astype(float))
        )
        or np.isnan(expected.values.astype(float)).any()
    )


@many
@given(arrays(max_rank=4))
def test_advice_comes_back_from_json_as_the_dtype_that_is_asked_for(array):
    assume(array.size)
    with np.errstate(invalid="ignore"):
        native = np.ascontiguousarray(array).astype(
            array.dtype.newbyteorder("=") if array.dtype.name != "bfloat16" else array.dtype
        )
        found = js.decode_advice(js.encode_advice({"advice": array}), native.dtype)["advice"]
    assert found.dtype == native.dtype and found.shape == array.shape
    assert same_numbers(np.asarray(found), native.reshape(array.shape))


# ---- Bitstream ----

SIZES = zip((8, 16, 32, 64), "bhiq", strict=True)
TYPES = {"float": "f", "double": "d"}
TYPES |= {f"{u}int{n}_t": c.upper() if u else c for n, c in SIZES for u in ("", "u")}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}
streamable = [np.dtype(code) for code in TYPES.values()]


def read_bitstream(data):
    """By the description alone: {name: (type, shape, numbers)}."""
    line, _, rest = data.partition(b"\n")
    head, found = json.loads(line), {}
    assert set(head) == {"features"}
    for spec in head["features"]:
        code, count = TYPES[spec["type"]], int(np.prod(spec["shape"], dtype=int))
        size = struct.calcsize(f"={count}{code}")
        found[spec["name"]] = (
            spec["type"],
            spec["shape"],
            struct.unpack(f"={count}{code}", rest[:size]),
        )
        rest = rest[size:]
    assert rest == b"\n"
    return found


def write_bitstream(fields):
    specs = [
        {"name": name, "type": kind, "port": 6020, "shape": shape}
        for name, (kind, shape, _) in fields.items()
    ]
    body = b"".join(
        struct.pack(f"={len(numbers)}{TYPES[kind]}", *numbers)
        for kind, shape, numbers in fields.values()
    )
    return json.dumps({"features": specs}).encode() + b"\n" + body + b"\n"


@many
@given(st.dictionaries(names, arrays(streamable, max_rank=4), max_size=5))
def test_a_bitstream_is_read_and_written_as_described(message):
    found = read_bitstream(bits.encode(message))
    assert list(found) == list(message)
    for name, array in message.items():
        native = array.astype(array.dtype.newbyteorder("="))
        kind, shape, sent = found[name]
        assert kind == NAMES[native.dtype] and shape == (list(array.shape) or [1])
        assert np.array_equal(
            np.array(sent, native.dtype), native.ravel(), equal_nan=native.dtype.kind == "f"
        )
    vectors = {
        name: np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(
            array.shape or (1,)
        )
        for name, array in message.items()
    }
    assert identical(bits.decode(bits.encode(message)), vectors)
    finite = {
        name: part
        for name, part in found.items()
        if not any(number != number for number in part[2])
    }
    assert identical(bits.decode(write_bitstream(finite)), {name: vectors[name] for name in finite})


def test_compilerinterfaces_reader_reads_a_bitstream():
    # Whose import needs gRPC, which the reader does not.
    package = importlib.util.find_spec("compilerinterface")
    if package is None or not package.submodule_search_locations:
        pytest.skip("no compilerinterface: pip install --no-deps compilerinterface==0.0.2")
    spec = importlib.util.spec_from_file_location(
        "log_reader", Path(package.submodule_search_locations[0]) / "log_reader.py"
    )
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    sent = {
        "a": np.arange(5, dtype="f4"),
        "b": np.int64(2**40),
        "c": np.array([[1, 2], [3, 4]], "i4"),
        "flag": True,
    }
    _, _, features, _ = next(reader.read_stream2(io.BufferedReader(io.BytesIO(bits.encode(sent)))))
    found = {value.spec().name: [value[i] for i in range(len(value))] for value in features}
    assert found == {"a": [0, 1, 2, 3, 4], "b": [2**40], "c": [1, 2, 3, 4], "flag": [1]}


@pytest.mark.parametrize("value", [["a", "b"], [[1], [2, 3]], np.float16(1), np.ones(3, "f2")])
def test_what_a_bitstream_cannot_hold_is_an_error_that_names_the_field(value):
    for encode in (bits.encode, lambda x: bits.encode_advice({"x": x["x"]})):
        with pytest.raises(UnsupportedError, match='"x"'):
            encode({"x": value})


# ---- FlatBuffers, bytes ----


@many
@given(messages)
def test_a_flatbuffers_frame_has_the_header_that_python_reads(message):
    with np.errstate(invalid="ignore"):
        data = flat.encode_request(message, np.dtype("f4"))
    want, size = struct.unpack_from("=2I", data)
    fields = header.decode(data[8 : 8 + size])
    assert want == 11 and [field.name for field in fields] == list(message)
    for field, (name, value) in zip(fields, message.items(), strict=True):
        sent = tensor.as_field(name, value)
        assert (field.dtype, field.kind, field.rank) == (sent.code, sent.kind, sent.values.ndim)

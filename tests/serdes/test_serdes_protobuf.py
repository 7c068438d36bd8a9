"""The SerDes "protobuf": its own messages and the user's, checked with google.protobuf itself;
bytes that lie are errors."""

import struct
import tracemalloc

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import encoder
from hypothesis import given
from hypothesis import strategies as st
from support.values import many

from shmbridge import (
    CorruptError,
    InexactError,
    InvalidError,
    MismatchError,
    Ragged,
    ShmbridgeError,
    StringList,
    serdes,
)
from shmbridge._generated import bridge_pb2 as schema
from shmbridge._runner import urls
from shmbridge.serdes._core import Core
from shmbridge.serdes._user_message import UserMessage

own = serdes.find("protobuf")


# ---- bridge.proto ----


def test_a_message_is_what_the_schema_says():
    sent = {
        "x": np.array([[1, 2]], "<i2"),
        "s": "é",
        "t": ["a", ""],
        "r": Ragged(np.array([1.5, 2.5, 3.5], "<f4"), np.array([0, 1, 3])),
    }
    message = schema.Message.FromString(own.encode_request(sent, np.dtype("u8")))
    x, s, t, r = message.fields
    assert message.want == schema.UINT64
    assert (x.name, x.dtype, x.kind, list(x.dims), x.data) == (
        "x",
        schema.INT16,
        schema.TENSOR,
        [1, 2],
        struct.pack("<2h", 1, 2),
    )
    assert (s.name, s.dtype, s.kind, s.data) == ("s", schema.UINT8, schema.STRING, "é".encode())
    assert (t.name, t.dtype, t.kind, list(t.strings)) == (
        "t",
        schema.UINT8,
        schema.STRINGS,
        [b"a", b""],
    )
    assert (r.kind, list(r.dims), list(r.offsets), r.data) == (
        schema.RAGGED,
        [3],
        [0, 1, 3],
        struct.pack("<3f", 1.5, 2.5, 3.5),
    )


def test_what_others_write_is_read():
    field = schema.Field(
        name="x",
        dtype=schema.FLOAT64,
        kind=schema.TENSOR,
        dims=[2],
        data=struct.pack("<2d", 0.1, -0.0),
    )
    found = own.decode(schema.Message(fields=[field]).SerializeToString())
    assert found["x"].tolist() == [0.1, 0.0] and np.signbit(found["x"][1])


def test_the_schemas_numbers_are_the_c_librarys():
    from shmbridge._native import ffi, lib

    for prefix, enum in (("", schema.DType), ("", schema.Kind)):
        for name, number in enum.items():
            assert getattr(lib, f"SHMB_{prefix}{name}") == number
    assert len(schema.DType.items()) == len(ffi.typeof("shmb_dtype").elements)
    assert len(schema.Kind.items()) == len(ffi.typeof("shmb_kind").elements)


FIELD = {"name": "x", "dtype": schema.FLOAT32, "dims": [2], "data": b"\0" * 8}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dims": [3]}, "takes 12 bytes, found 8"),
        ({"dims": [2**62, 4]}, "1 TiB at most"),
        ({"dims": [2**62, 2**62, 2**62]}, "1 TiB at most"),
        ({"dims": [-2]}, "0 or more"),
        ({"dims": [-1, -2]}, "0 or more"),
        ({"dims": [1] * 9 + [2]}, "0 to 8 dims"),
        ({"dims": [0, 2**63 - 1], "data": b""}, "1 TiB at most"),
        ({"data": b""}, "takes 8 bytes, found 0"),
        ({"dtype": schema.ANY}, "found ANY"),
        ({"dtype": 14}, "dtype code"),
        ({"dtype": -1}, "dtype code"),
        ({"dtype": schema.BOOL, "data": b"\1\2"}, "bytes 0 and 1"),
        ({"kind": 4}, "kind 4"),
        ({"kind": schema.STRING}, "dims"),
        ({"kind": schema.STRING, "dims": []}, "text of dtype UINT8"),
        ({"kind": schema.STRINGS}, "dims"),
        ({"strings": [b"a"]}, "strings"),
        ({"offsets": [0, 2]}, "offsets"),
        ({"kind": schema.RAGGED}, "offsets"),
        ({"kind": schema.RAGGED, "offsets": [0, 3]}, "offsets"),
        ({"kind": schema.RAGGED, "offsets": [0, -1, 2]}, "offsets"),
        (
            {"kind": schema.RAGGED, "offsets": [0, 2], "dims": [], "data": b"\0" * 4},
            "dims of a ragged list",
        ),
        ({"name": ""}, "name"),
        ({"name": "a\0"}, "name"),
    ],
)
def test_a_field_that_lies_is_corrupt(changed, says):
    data = schema.Message(fields=[schema.Field(**(FIELD | changed))]).SerializeToString()
    for some in (own, Core(serdes.ensure("protobuf"))):
        with pytest.raises(CorruptError) as caught:
            some.decode(data)
        assert says in str(caught.value)


def test_a_name_that_comes_twice_and_a_wish_that_is_none_are_corrupt():
    field = schema.Field(**FIELD)
    with pytest.raises(CorruptError, match='"x" comes twice'):
        own.decode(schema.Message(fields=[field, field]).SerializeToString())
    with pytest.raises(CorruptError, match="wants"):
        own.decode(schema.Message(want=99).SerializeToString())


def test_truncated_bytes_are_corrupt_and_never_a_shorter_value():
    data = own.encode({"x": np.arange(4), "t": ["a", "bc"]})
    whole = own.decode(data)
    for end in range(len(data)):
        try:
            found = own.decode(data[:end])
        except CorruptError:
            continue
        assert set(found) < set(whole)  # it ends between fields


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**40, 2**63 - 1])
def test_a_length_that_lies_takes_no_memory(claimed):
    data = encoder._VarintBytes(1 << 3 | 2) + encoder._VarintBytes(claimed) + b"\0" * 100
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            own.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# ---- The user's own ----

PROTO = {
    "Inner": [("a", 1, "INT32", 1, ""), ("names", 2, "STRING", 3, "")],
    "Everything": [
        ("i32", 1, "INT32", 1, ""),
        ("i64", 2, "SINT64", 1, ""),
        ("u32", 3, "FIXED32", 1, ""),
        ("u64", 4, "UINT64", 1, ""),
        ("f", 5, "FLOAT", 1, ""),
        ("d", 6, "DOUBLE", 1, ""),
        ("b", 7, "BOOL", 1, ""),
        ("s", 8, "STRING", 1, ""),
        ("raw", 9, "BYTES", 1, ""),
        ("many_f", 10, "FLOAT", 3, ""),
        ("many_i64", 11, "INT64", 3, ""),
        ("many_b", 12, "BOOL", 3, ""),
        ("many_s", 13, "STRING", 3, ""),
        ("inner", 14, "MESSAGE", 1, ".toy.Inner"),
        ("colour", 15, "ENUM", 1, ".toy.Colour"),
    ],
    "One": [("decision", 1, "INT64", 1, "")],
    "Either": [
        ("left", 1, "INT64", 1, "", 0),
        ("right", 2, "INT64", 1, "", 0),
        ("deep", 3, "MESSAGE", 1, ".toy.Inner", 0),
    ],
    "Lists": [("inner", 1, "MESSAGE", 3, ".toy.Inner")],
    "Itself": [("x", 1, "INT64", 1, ""), ("next", 2, "MESSAGE", 1, ".toy.Itself")],
    "Blobs": [("raw", 1, "BYTES", 3, "")],
}


def make_classes():
    """Classes as protoc would generate them."""
    file = descriptor_pb2.FileDescriptorProto(name="toy_test.proto", package="toy", syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(["RED", "GREEN"]):
        colour.value.add(name=name, number=number)
    for name, fields in PROTO.items():
        message = file.message_type.add(name=name)
        if any(len(field) == 6 for field in fields):
            message.oneof_decl.add(name="choice")
        for called, number, kind, label, type_name, *oneof in fields:
            field = message.field.add(
                name=called,
                number=number,
                type=getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind}"),
                label=label,
            )
            if type_name:
                field.type_name = type_name
            if oneof:
                field.oneof_index = oneof[0]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"toy.{name}"))
        for name in PROTO
    }


classes = make_classes()
globals().update(classes)  # for MODULE:CLASS
everything = serdes.find("protobuf", request=f"{__name__}:Everything", advice=f"{__name__}:One")
FULL = {
    "i32": np.int32(-(2**31)),
    "i64": np.int64(-(2**63)),
    "u32": np.uint32(2**32 - 1),
    "u64": np.uint64(2**64 - 1),
    "f": np.float32(0.1),
    "d": np.float64("inf"),
    "b": np.bool_(True),
    "s": "é",
    "raw": np.array([0, 255], "u1"),
    "many_f": np.array([np.nan, -np.inf, 1e-45], "f4"),
    "many_i64": np.array([2**63 - 1, 2**31], "i8"),
    "many_b": np.array([True, False]),
    "many_s": ["a", ""],
    "inner.a": np.int32(7),
    "inner.names": ["x"],
    "colour": np.int32(1),
}


def test_a_users_message_holds_the_features_and_gives_them_back():
    message = classes["Everything"].FromString(everything.encode(FULL))
    assert (
        message.i64 == -(2**63)
        and message.u64 == 2**64 - 1
        and message.many_i64[:] == [2**63 - 1, 2**31]
    )
    assert (
        message.f == np.float32(0.1)
        and message.d == float("inf")
        and message.s == "é"
        and message.raw == b"\0\xff"
    )
    assert message.inner.a == 7 and list(message.inner.names) == ["x"] and message.colour == 1
    found = everything.decode(message.SerializeToString())
    assert list(found) == list(FULL)
    for name, value in FULL.items():
        assert type(found[name]) is type(value) or isinstance(found[name], StringList), name
        assert np.array_equal(found[name], value, equal_nan=name == "many_f"), name
        assert getattr(found[name], "dtype", None) == getattr(value, "dtype", None), name


def test_what_is_unset_is_its_default_except_where_the_message_tells():
    found = everything.decode(b"")
    assert (
        found["i32"] == 0
        and found["s"] == ""
        and found["many_f"].shape == (0,)
        and found["many_s"] == []
    )
    assert "inner.a" not in found
    assert everything.decode(everything.encode({"inner.a": 0}))["inner.a"] == 0


def test_empty_lists_are_no_tensor_of_float64():
    found = everything.decode(
        everything.encode({"many_s": [], "many_i64": [], "many_f": np.empty(0, "f4")})
    )
    assert (
        found["many_s"] == []
        and found["many_i64"].dtype == np.int64
        and found["many_f"].dtype == np.float32
    )


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("colour", 2**31, InexactError),
        ("i32", 2**31, InexactError),
        ("i32", np.int64(-(2**31) - 1), InexactError),
        ("u32", -1, InexactError),
        ("u64", -1, InexactError),
        ("i64", 2**63, InexactError),
        ("i64", 2**64, InvalidError),
        ("f", -1e300, InexactError),
        ("f", 2**24 + 1, InexactError),
        ("many_f", np.array([1.0, 1e300]), InexactError),
        ("i32", 1.0, MismatchError),
        ("i32", True, MismatchError),
        ("b", 1, MismatchError),
        ("i32", "1", MismatchError),
        ("s", 1, MismatchError),
        ("s", ["a"], MismatchError),
        ("many_s", "a", MismatchError),
        ("raw", np.zeros(3, "i1"), MismatchError),
        ("raw", "text", MismatchError),
        ("i32", [1], MismatchError),
        ("many_f", 1.0, MismatchError),
        ("many_f", np.zeros((2, 2), "f4"), MismatchError),
        ("many_f", [[1.0], [2.0, 3.0]], MismatchError),
        ("many_i64", [1, 2.5], InvalidError),
        ("i32", [], MismatchError),
        ("s", "\udcff", InvalidError),
        ("many_s", ["\udcff"], InvalidError),
        ("nothing", 1, MismatchError),
        ("inner", 1, MismatchError),
        ("a", 1, MismatchError),
    ],
)
def test_what_a_users_message_cannot_hold_is_an_error_that_names_the_field(name, value, error):
    with pytest.raises(error) as caught:
        everything.encode({"i64": 1, name: value})
    assert f'"{name}"' in str(caught.value) and type(caught.value) is error


def test_a_float_field_takes_the_float32_that_is_nearest_to_a_python_float():
    found = everything.decode(everything.encode({"f": 0.1, "many_f": [0.1, -np.inf, np.nan]}))
    assert found["f"] == np.float32(0.1)
    nearest = np.array([0.1, -np.inf, np.nan], np.float32)
    assert np.array_equal(found["many_f"], nearest, equal_nan=True)


def test_integers_may_become_other_numbers_where_that_is_exact():
    found = everything.decode(
        everything.encode({"f": 3, "d": 2**53, "i32": np.uint8(200), "u64": 5, "colour": 7})
    )
    assert (found["f"], found["d"], found["i32"], found["u64"], found["colour"]) == (
        3,
        2.0**53,
        200,
        5,
        7,
    )


def test_of_a_oneof_only_one_may_be_set():
    either = UserMessage(classes["Either"])
    assert either.values(either.of({"right": 5})) == {"right": 5}
    assert either.values(either.of({"deep.a": 5, "deep.names": ["x"]})) == {
        "deep.a": 5,
        "deep.names": ["x"],
    }
    for second in ("left", "deep.a"):
        with pytest.raises(MismatchError, match=f'"{second}": the message has "right" already'):
            either.of({"right": 5, second: 6})


@pytest.mark.parametrize(
    ("name", "says"),
    [("Lists", "toy.Lists.inner is"), ("Itself", "within itself"), ("Blobs", "toy.Blobs.raw")],
)
def test_a_class_that_no_tensors_can_hold_is_refused(name, says):
    with pytest.raises(InvalidError, match=says):
        serdes.find("protobuf", request=f"{__name__}:{name}")


@pytest.mark.parametrize(
    "name", ["nomodule:X", f"{__name__}:Nothing", "nocolon", f"{__name__}:FULL", "", "os:path"]
)
def test_what_names_no_message_class_is_refused(name):
    if name:
        with pytest.raises(InvalidError, match="expected"):
            serdes.find("protobuf", request=name)


def test_a_nameless_advice_is_the_only_field_of_its_message():
    assert classes["One"].FromString(everything.encode_advice({"advice": 5})).decision == 5
    assert everything.decode_advice(classes["One"](decision=5).SerializeToString(), None) == {
        "decision": 5
    }
    with pytest.raises(InexactError, match='"decision"'):
        everything.encode_advice({"advice": 2**63})
    many_fields = serdes.find("protobuf", advice=f"{__name__}:Everything")
    with pytest.raises(
        MismatchError, match='"advice": toy.Everything has no such field; expected i32, '
    ):
        many_fields.encode_advice({"advice": 5})


def test_a_urls_classes_become_part_of_the_serdes_name():
    module = __name__
    url = urls.resolve(
        f"pipe:///p?connect_timeout=1&request={module}:Everything&serdes=protobuf&wait=spin&"
        f"advice={module}:One"
    )
    name = f"protobuf(advice:{module}:One,request:{module}:Everything)"
    assert (
        url == f"pipe:///p?serdes={name}&connect_timeout=1&wait=spin" and urls.resolve(url) == url
    )
    seen = Core(name)
    assert seen.encode({"i32": 5}) == classes["Everything"](i32=5).SerializeToString()
    assert seen.decode_advice(classes["One"](decision=5).SerializeToString(), np.dtype("f4")) == {
        "decision": 5
    }
    with pytest.raises(InexactError):
        seen.encode({"f": 1e300})


def test_a_missing_required_field_is_named():
    file = descriptor_pb2.FileDescriptorProto(
        name="toy2_test.proto", package="toy2", syntax="proto2"
    )
    message = file.message_type.add(name="Must")
    for number, name in enumerate("ab", 1):
        message.field.add(
            name=name, number=number, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=2
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    globals()["Must"] = message_factory.GetMessageClass(pool.FindMessageTypeByName("toy2.Must"))
    must = serdes.find("protobuf", request=f"{__name__}:Must")
    assert must.decode(must.encode({"a": 1, "b": 2})) == {"a": 1, "b": 2}
    with pytest.raises(InvalidError, match="required field is missing: b"):
        must.encode({"a": 1})


@many
@given(st.binary(max_size=100))
def test_any_bytes_are_a_users_message_or_corrupt(data):
    try:
        found = everything.decode(data)
    except ShmbridgeError as error:
        assert isinstance(error, CorruptError)
    else:
        everything.encode(found)

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
    kinds = [(f.name, f.dtype, f.kind) for f in message.fields]
    assert kinds == [
        ("x", schema.INT16, schema.TENSOR),
        ("s", schema.UINT8, schema.STRING),
        ("t", schema.UINT8, schema.STRINGS),
        ("r", schema.FLOAT32, schema.RAGGED),
    ]
    assert (list(x.dims), x.data) == ([1, 2], struct.pack("<2h", 1, 2))
    assert s.data == "é".encode() and list(t.strings) == [b"a", b""]
    assert (list(r.dims), list(r.offsets)) == ([3], [0, 1, 3])
    assert r.data == struct.pack("<3f", 1.5, 2.5, 3.5)


def test_what_others_write_is_read():
    data = struct.pack("<2d", 0.1, -0.0)
    field = schema.Field(name="x", dtype=schema.FLOAT64, kind=schema.TENSOR, dims=[2], data=data)
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


RAGGED = {"kind": schema.RAGGED}
LIES = {
    "takes 12 bytes, found 8": [{"dims": [3]}],
    "takes 8 bytes, found 0": [{"data": b""}],
    "1 TiB at most": [
        *({"dims": dims} for dims in ([2**62, 4], [2**62, 2**62, 2**62])),
        {"dims": [0, 2**63 - 1], "data": b""},
    ],
    "0 or more": [{"dims": [-2]}, {"dims": [-1, -2]}],
    "0 to 8 dims": [{"dims": [1] * 9 + [2]}],
    "found ANY": [{"dtype": schema.ANY}],
    "dtype code": [{"dtype": 14}, {"dtype": -1}],
    "bytes 0 and 1": [{"dtype": schema.BOOL, "data": b"\1\2"}],
    "kind 4": [{"kind": 4}],
    "dims": [{"kind": schema.STRING}, {"kind": schema.STRINGS}],
    "text of dtype UINT8": [{"kind": schema.STRING, "dims": []}],
    "strings": [{"strings": [b"a"]}],
    "offsets": [
        *({"offsets": [0, 2]}, RAGGED),
        *(RAGGED | {"offsets": offsets} for offsets in ([0, 3], [0, -1, 2])),
    ],
    "dims of a ragged list": [RAGGED | {"offsets": [0, 2], "dims": [], "data": b"\0" * 4}],
    "name": [{"name": ""}, {"name": "a\0"}],
}


@pytest.mark.parametrize(
    ("changed", "says"), [(changed, says) for says, each in LIES.items() for changed in each]
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

# The fields of each message in order: name, type, and "*" where it is repeated.
PROTO = {
    "Inner": "a INT32, names STRING*",
    "Everything": "i32 INT32, i64 SINT64, u32 FIXED32, u64 UINT64, f FLOAT, d DOUBLE, b BOOL,"
    " s STRING, raw BYTES, many_f FLOAT*, many_i64 INT64*, many_b BOOL*, many_s STRING*,"
    " inner .toy.Inner, colour .toy.Colour",
    "One": "decision INT64",
    "Either": "left INT64, right INT64, deep .toy.Inner",
    "Lists": "inner .toy.Inner*",
    "Itself": "x INT64, next .toy.Itself",
    "Blobs": "raw BYTES*",
}


def make_classes():
    """Classes as protoc would generate them."""
    file = descriptor_pb2.FileDescriptorProto(name="toy_test.proto", package="toy", syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(["RED", "GREEN"]):
        colour.value.add(name=name, number=number)
    for name, fields in PROTO.items():
        message = file.message_type.add(name=name)
        if name == "Either":
            message.oneof_decl.add(name="choice")
        for number, words in enumerate(fields.split(", "), 1):
            called, kind = words.rstrip("*").split()
            field = message.field.add(name=called, number=number, label=1 + 2 * words.endswith("*"))
            if kind[0] == ".":
                field.type_name, kind = kind, "ENUM" if kind == ".toy.Colour" else "MESSAGE"
            field.type = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind}")
            if name == "Either":
                field.oneof_index = 0
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
    assert (message.i64, message.u64) == (-(2**63), 2**64 - 1)
    assert message.many_i64[:] == [2**63 - 1, 2**31]
    assert (message.f, message.d) == (np.float32(0.1), float("inf"))
    assert (message.s, message.raw) == ("é", b"\0\xff")
    assert message.inner.a == 7 and list(message.inner.names) == ["x"] and message.colour == 1
    found = everything.decode(message.SerializeToString())
    assert list(found) == list(FULL)
    for name, value in FULL.items():
        assert type(found[name]) is type(value) or isinstance(found[name], StringList), name
        assert np.array_equal(found[name], value, equal_nan=name == "many_f"), name
        assert getattr(found[name], "dtype", None) == getattr(value, "dtype", None), name


def test_what_is_unset_is_its_default_except_where_the_message_tells():
    found = everything.decode(b"")
    assert (found["i32"], found["s"], found["many_s"]) == (0, "", [])
    assert found["many_f"].shape == (0,)
    assert "inner.a" not in found
    assert everything.decode(everything.encode({"inner.a": 0}))["inner.a"] == 0


def test_empty_lists_are_no_tensor_of_float64():
    found = everything.decode(
        everything.encode({"many_s": [], "many_i64": [], "many_f": np.empty(0, "f4")})
    )
    assert found["many_s"] == []
    assert (found["many_i64"].dtype, found["many_f"].dtype) == (np.int64, np.float32)


CANNOT_HOLD = {
    InexactError: [
        *(
            ("i32", 2**31),
            ("i32", np.int64(-(2**31) - 1)),
            ("u32", -1),
            ("u64", -1),
            ("i64", 2**63),
        ),
        *(("f", -1e300), ("f", 2**24 + 1), ("many_f", np.array([1.0, 1e300])), ("colour", 2**31)),
    ],
    InvalidError: [
        *(("i64", 2**64), ("many_i64", [1, 2.5]), ("s", "\udcff"), ("many_s", ["\udcff"])),
    ],
    MismatchError: [
        *(("i32", value) for value in (1.0, True, "1", [1], [])),
        *(("b", 1), ("s", 1), ("s", ["a"]), ("many_s", "a"), ("raw", np.zeros(3, "i1"))),
        *(("many_f", value) for value in (1.0, np.zeros((2, 2), "f4"), [[1.0], [2.0, 3.0]])),
        *(("raw", "text"), ("nothing", 1), ("inner", 1), ("a", 1)),
    ],
}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [(*field, error) for error, fields in CANNOT_HOLD.items() for field in fields],
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
    sent = {"f": 3, "d": 2**53, "i32": np.uint8(200), "u64": 5, "colour": 7}
    found = everything.decode(everything.encode(sent))
    assert {name: found[name] for name in sent} == sent


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

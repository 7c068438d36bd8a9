"""The header codec: C, Python and the official C++ Verifier agree about the same bytes."""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import flatbuffers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import message_generated as message
from support.header import Field, decode, encode
from support.message_generated import FLATC, DType, Kind

ROOT = Path(__file__).parents[2]
COMMAND_LINE = ["-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared"]


class CField(ctypes.Structure):
    """struct field of message.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("name_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_uint8),
        ("kind", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
    ]


class CLayout(ctypes.Structure):
    """struct layout of message.h."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("dims", ctypes.c_uint32),
        ("fields", ctypes.POINTER(CField)),
    ]


@dataclass(frozen=True)
class Codec:
    """header.c and the official Verifier, called through ctypes."""

    library: ctypes.CDLL
    verify: Callable[[bytes, int], bool]

    def write(self, fields):
        names = [field.name.encode() for field in fields]
        array = (CField * len(fields))(
            *[
                CField(name, len(name), f.dtype, f.kind, f.rank)
                for name, f in zip(names, fields, strict=True)
            ]
        )
        size = self.library.shmb_header_write(array, len(fields), None, 0)
        out = ctypes.create_string_buffer(b"\xff" * size, size)
        assert self.library.shmb_header_write(array, len(fields), out, size - 1) == size
        assert out.raw == b"\xff" * size, "wrote into too little room"
        assert self.library.shmb_header_write(array, len(fields), out, size) == size
        return out.raw

    def read(self, data):
        """Raises ValueError with header_read's reason."""
        why = ctypes.c_char_p()
        layout = self.library.shmb_header_read(data, len(data), ctypes.byref(why))
        if not layout:
            raise ValueError((why.value or b"").decode())
        try:
            assert not why.value
            found = layout.contents
            fields = [
                Field(ctypes.string_at(f.name, f.name_bytes).decode(), f.dtype, f.kind, f.rank)
                for f in found.fields[: found.count]
            ]
            assert all(f.name[f.name_bytes :] == b"" for f in found.fields[: found.count])
            assert found.dims == sum(
                f.rank + (f.kind in (Kind.strings, Kind.ragged)) for f in fields
            )
            return fields
        finally:
            self.library.free(layout)


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    out = tmp_path_factory.mktemp("header")

    def run(*command):
        subprocess.run(list(map(str, command)), cwd=out, check=True)

    run(FLATC / "bin" / "flatc", "--cpp", ROOT / "schemas" / "message.fbs")
    source = ROOT / "cdef" / "src"
    include = (f"-I{ROOT / 'cdef' / 'include'}", f"-I{source}")
    parts = ("message/header.c", "message/message.c", "message/dtype.c", "base/error.c")
    files = [source / name for name in parts]
    run("cc", "-std=c11", "-D_GNU_SOURCE", *COMMAND_LINE, *include, *files, "-o", "header.so")
    verifier, official = ROOT / "tests/cross/header_verify.cpp", ("-isystem", FLATC / "include")
    run("c++", "-std=c++17", *COMMAND_LINE, "-I.", *official, verifier, "-o", "verify.so")

    library = ctypes.CDLL(str(out / "header.so"))
    fields, text, size = ctypes.POINTER(CField), ctypes.c_char_p, ctypes.c_size_t
    library.shmb_header_write.argtypes = [fields, ctypes.c_uint32, text, size]
    library.shmb_header_write.restype = size
    library.shmb_header_read.argtypes = [text, size, ctypes.POINTER(text)]
    library.shmb_header_read.restype = ctypes.POINTER(CLayout)
    library.free.argtypes = [ctypes.POINTER(CLayout)]
    library.free.restype = None
    verify = ctypes.CDLL(str(out / "verify.so")).header_verify
    verify.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    verify.restype = ctypes.c_bool
    return Codec(library, verify)


NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
DTYPES = st.integers(DType.bool_, DType.bfloat16)
FIELDS = st.one_of(
    st.builds(Field, NAMES, DTYPES, st.just(Kind.tensor), st.integers(0, 8)),
    st.builds(Field, NAMES, DTYPES, st.just(Kind.ragged), st.integers(1, 8)),
    st.builds(
        Field,
        NAMES,
        st.just(DType.uint8),
        st.sampled_from([Kind.string_, Kind.strings]),
        st.just(1),
    ),
)
LAYOUTS = st.lists(FIELDS, max_size=8, unique_by=lambda field: field.name)


@st.composite
def damaged_headers(draw, codec):
    """A valid header of either writer with some bytes flipped, cut off, put in or swapped for
    telling numbers."""
    fields = draw(LAYOUTS)
    data = bytearray(codec.write(fields) if draw(st.booleans()) else encode(fields))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "insert", "remove", "number", "copy"])):
            case "flip" if at < len(data):
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(max_size=8))
            case "remove":
                del data[at : at + draw(st.integers(1, 8))]
            case "number":
                value = draw(
                    st.sampled_from(
                        [0, 1, 2, 4, 8, 12, 16, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC]
                    )
                )
                data[at & ~3 : (at & ~3) + 4] = value.to_bytes(4, "little")
            case "copy":
                other = draw(st.integers(0, len(data)))
                data[at & ~3 : (at & ~3) + 4] = data[other & ~3 : (other & ~3) + 4]
    return bytes(data)


def outcome(read, data):
    """None for a ValueError; every other exception is the test's failure."""
    try:
        return read(data)
    except ValueError:
        return None


def check_agreement(codec, data):
    found = outcome(codec.read, data)
    assert outcome(decode, data) == found
    if found is not None:
        assert codec.verify(data, len(data)), "C accepts what the Verifier rejects"


@given(fields=LAYOUTS)
def test_what_c_writes_is_read_by_python_and_c_and_verified(codec, fields):
    data = codec.write(fields)
    assert codec.verify(data, len(data))
    assert decode(data) == fields
    assert codec.read(data) == fields


@given(fields=LAYOUTS)
def test_what_python_writes_is_read_by_c_and_python_and_verified(codec, fields):
    data = encode(fields)
    assert codec.verify(data, len(data))
    assert codec.read(data) == fields
    assert decode(data) == fields


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_headers_are_accepted_by_c_and_python_alike_and_only_if_verified(codec, data):
    check_agreement(codec, data.draw(damaged_headers(codec)))


# Where the parts of a header may lie, and the slots in their tables.
PARTS = "layout_vtable", "field_vtable", "layout", "vector", "field", "name"
PLACES = {part: 16 * i for i, part in enumerate(PARTS, 1)} | {"fields_slot": 4, "name_slot": 4}


def assemble(**places):
    """A header of one int8 scalar named "a", its parts where the caller wants them, with offsets
    that lead there."""
    at = PLACES | places
    fields, name = at["layout"] + at["fields_slot"], at["field"] + at["name_slot"]
    data = bytearray(256)
    struct.pack_into("<I4s", data, 0, at["layout"], b"SHMB")
    struct.pack_into("<3H", data, at["layout_vtable"], 6, 12, at["fields_slot"])
    struct.pack_into("<4H", data, at["field_vtable"], 8, 13, at["name_slot"], 12)
    struct.pack_into("<i", data, at["layout"], at["layout"] - at["layout_vtable"])
    struct.pack_into("<I", data, fields, (at["vector"] - fields) % 2**32)
    struct.pack_into("<2I", data, at["vector"], 1, (at["field"] - at["vector"] - 4) % 2**32)
    struct.pack_into("<i8xB", data, at["field"], at["field"] - at["field_vtable"], DType.int8)
    struct.pack_into("<I", data, name, (at["name"] - name) % 2**32)
    struct.pack_into("<I2s", data, at["name"], 1, b"a")
    return bytes(data)


def test_parts_may_lie_in_any_order_that_offsets_allow(codec):
    for data in (assemble(), assemble(layout_vtable=112, field_vtable=104)):
        assert codec.verify(data, len(data))
        assert codec.read(data) == decode(data) == [Field("a", DType.int8)]


@pytest.mark.parametrize("part", PLACES)
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_a_misaligned_part_is_rejected(codec, part, shift):
    data = assemble(**{part: PLACES[part] + shift})
    aligned = part.endswith("vtable") and shift == 2
    assert codec.verify(data, len(data)) == aligned
    assert (outcome(codec.read, data) is not None) == aligned
    check_agreement(codec, data)


@given(
    places=st.dictionaries(st.sampled_from(list(PLACES)), st.integers(0, 112)),
    size=st.integers(12, 256),
)
def test_parts_anywhere_even_overlapping_are_accepted_by_c_and_python_alike_and_only_if_verified(
    codec, places, size
):
    check_agreement(codec, assemble(**places)[:size])


def test_every_truncation_is_rejected(codec):
    data = codec.write([Field("features", DType.float32, Kind.tensor, 1)])
    last_text_byte = data.rindex(b"s")
    for size in range(last_text_byte + 2):  # what follows the terminating zero is padding
        check_agreement(codec, data[:size])
        assert outcome(codec.read, data[:size]) is None


LONG = "n" * 1000


def build(names, dtype=DType.int8, kind=0, rank=0, *, extra=False, shared=False):
    """A FlatBuffer that a layout may forbid; extra: with the fields of a later schema, and kind and
    rank left out; shared: equal names are one string."""
    builder = flatbuffers.Builder(0)
    tables = []
    create = builder.CreateSharedString if shared else builder.CreateString
    for name in names:
        text = None if name is None else create(name)
        builder.StartObject(7 if extra else 4)
        if text is not None:
            message.FieldAddName(builder, text)
        message.FieldAddDtype(builder, dtype)
        message.FieldAddKind(builder, kind)
        message.FieldAddRank(builder, rank)
        if extra:
            builder.PrependFloat64Slot(6, 1.5, 0)
        tables.append(builder.EndObject())
    message.LayoutStartFieldsVector(builder, len(tables))
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    builder.StartObject(3 if extra else 1)
    message.LayoutAddFields(builder, vector)
    if extra:
        builder.PrependInt64Slot(2, -1, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"SHMB")
    return bytes(builder.Output())


def test_fields_of_a_later_schema_are_tolerated(codec):
    data = build(["a", "b"], extra=True)
    fields = [Field("a", DType.int8), Field("b", DType.int8)]
    assert codec.read(data) == decode(data) == fields


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "identifier", id="empty"),
        pytest.param(b"\x08\0\0\0SHMA\0\0\0\0", "identifier", id="another identifier"),
        pytest.param(build([None]), "name is missing", id="no name"),
        pytest.param(build([""]), "name is empty", id="empty name"),
        pytest.param(build(["a\0b"]), "zero byte", id="zero byte in a name"),
        pytest.param(build(["a", "b", "a"]), "same name", id="name twice"),
        pytest.param(build([LONG] * 30, shared=True), "names overlap", id="one long name for all"),
        pytest.param(build(["a"], dtype=DType.any), "dtype", id="dtype any"),
        pytest.param(build(["a"], dtype=14), "dtype", id="unknown dtype"),
        pytest.param(build(["a"], kind=4), "dtype", id="unknown kind"),
        pytest.param(build(["a"], rank=9), "rank", id="tensor of rank 9"),
        pytest.param(build(["a"], kind=Kind.ragged), "rank", id="ragged of rank 0"),
        pytest.param(build(["a"], kind=Kind.string_, rank=1), "dtype", id="string of int8"),
        pytest.param(build(["a"], DType.uint8, Kind.strings, 2), "rank", id="strings of rank 2"),
        *(
            pytest.param(build([bytes.fromhex(text)]), "UTF-8", id=f"name {text}")
            for text in (
                *("80", "c1bf", "e09fbf", "eda080", "f08fbfbf"),
                *("f4908080", "f5808080", "61c3", "e282", "f09f98"),
            )
        ),
    ],
)
def test_a_header_that_breaks_a_rule_is_rejected_with_the_reason(codec, data, reason):
    with pytest.raises(ValueError, match=reason):
        codec.read(data)
    with pytest.raises(ValueError, match=r"header|field|text"):
        decode(data)


def test_many_entries_that_share_one_field_are_rejected(codec):
    data = bytearray(codec.write([Field(f"{i}", DType.int8) for i in range(1000)]))
    first = 40 + int.from_bytes(data[40:44], "little")
    for at in range(40, 40 + 4 * 1000, 4):
        data[at : at + 4] = (first - at).to_bytes(4, "little")
    assert codec.verify(bytes(data), len(data)), "sharing is good FlatBuffers"
    with pytest.raises(ValueError, match="same name"):
        codec.read(bytes(data))
    with pytest.raises(ValueError, match="twice"):
        decode(bytes(data))


def test_names_that_overlap_are_rejected_before_their_total_outgrows_the_header(codec):
    # 16 MiB and more: lengths whose four bytes are text without a zero, so that each name may
    # contain the next one's.
    count, longest = 28, 0x0101017D
    strings = 40 + 16 * count
    data = bytearray(codec.write([Field("x", DType.int8)] * count)[:strings])
    for i in range(count):
        table = 40 + 4 * count + 12 * i
        data[table + 4 : table + 8] = (strings + 4 * i - (table + 4)).to_bytes(4, "little")
    data += b"".join((longest - 4 * i).to_bytes(4, "little") for i in range(count))
    data += b"a" * (strings + 4 + longest - len(data)) + b"\0\0"
    assert codec.verify(bytes(data), len(data))
    with pytest.raises(ValueError, match="overlap"):
        codec.read(bytes(data))
    with pytest.raises(ValueError, match="offset or length"):
        decode(bytes(data))


def test_more_fields_than_the_verifier_allows_are_neither_written_nor_read(codec):
    field = CField(b"x", 1, DType.int8, Kind.tensor, 0)
    array = (CField * 1_000_000)(*[field] * 1_000_000)
    assert codec.library.shmb_header_write(array, 999_999, None, 0) == 40 + 24 * 999_999
    assert codec.library.shmb_header_write(array, 1_000_000, None, 0) == 0
    entries = 1_000_000
    data = bytearray(codec.write([Field("x", DType.int8)]))
    data[40:40] = bytes(4 * (entries - 1))
    data[36:40] = entries.to_bytes(4, "little")
    with pytest.raises(ValueError, match="more fields"):
        codec.read(bytes(data))
    with pytest.raises(ValueError, match="offset or length"):
        decode(bytes(data))


def test_more_than_two_gigabytes_cannot_be_expressed(codec):
    array = (CField * 3)(*[CField(None, 2**30, DType.int8, 0, 0)] * 3)
    assert codec.library.shmb_header_write(array, 3, None, 0) == 0


def generator(*command):
    # pip puts protoc beside python
    path = f"{FLATC / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})


def test_the_generated_python_is_what_protoc_makes():
    generator(ROOT / "schemas/generate", "--check")


@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("first", ["bridge_pb2", "shmbridge.serdes.protobuf"])
def test_what_users_make_of_the_schemas_shares_a_process_with_the_package(
    tmp_path, python, first, implementation
):
    schemas = ROOT / "schemas"
    generator("protoc", f"-I{schemas}", f"--python_out={tmp_path}", schemas / "bridge.proto")
    generator("flatc", "--python", "-o", tmp_path, schemas / "message.fbs")
    code = f"""
        import {first}, bridge_pb2
        from shmbridge import serdes
        made = bridge_pb2.Message.FromString(serdes.find("protobuf").encode({{"x": "text"}}))
        print(made.fields[0].data)
    """
    variable = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    assert python(code, env=os.environ | variable).end() == (0, "b'text'")

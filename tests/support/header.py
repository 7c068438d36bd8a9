"""The header codec: a layout as FlatBuffers bytes (schemas/message.fbs). Its counterpart in C is
cdef/src/message/header.c."""

import struct
from dataclasses import dataclass

import flatbuffers

from support import message_generated as message
from support.message_generated import DType, Kind

_IDENTIFIER = b"SHMB"
_MAX_BYTES = 2**31 - 2  # FlatBuffers' offsets are 31 bits
_MAX_FIELDS = 999_999  # FlatBuffers' verifier stops at a million tables; one is the layout's
_MAX_RANK = 8


@dataclass(frozen=True, slots=True)
class Field:
    """What stays the same from message to message about one named tensor.

    dtype and kind are the numbers of shmb_dtype and shmb_kind; rank is that of the values, without
    a list's row count. Raises ValueError for what cannot be: an empty name or one with a zero byte
    or a lone surrogate, an unknown dtype or kind, or a rank that the kind does not allow.
    """

    name: str
    dtype: int
    kind: int = Kind.tensor
    rank: int = 0

    def __post_init__(self):
        if not self.name or "\0" in self.name:
            raise ValueError(f"expected a field name without zero bytes, found {self.name!r}")
        self.name.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        if not DType.bool_ <= self.dtype <= DType.bfloat16:
            raise ValueError(
                f"field {self.name!r}: expected a dtype from 1 to 13, found {self.dtype}"
            )
        if not Kind.tensor <= self.kind <= Kind.ragged:
            raise ValueError(f"field {self.name!r}: expected a kind from 0 to 3, found {self.kind}")
        if self.kind in (Kind.string_, Kind.strings):
            if (self.dtype, self.rank) != (DType.uint8, 1):
                raise ValueError(
                    f"text {self.name!r}: expected uint8 and rank 1, found {self.dtype} and "
                    f"{self.rank}"
                )
        elif not int(self.kind == Kind.ragged) <= self.rank <= _MAX_RANK:
            raise ValueError(
                f"field {self.name!r}: expected at most 8 dims, and 1 in a list, found rank "
                f"{self.rank}"
            )


def encode(fields):
    """Returns the header of a layout. Raises ValueError when a name comes twice or there are a
    million fields."""
    _check_fields(fields)
    builder = flatbuffers.Builder(64 + 64 * len(fields))
    tables = []
    for field in fields:
        name = builder.CreateString(field.name)
        message.FieldStart(builder)
        message.FieldAddName(builder, name)
        message.FieldAddDtype(builder, field.dtype)
        message.FieldAddKind(builder, field.kind)
        message.FieldAddRank(builder, field.rank)
        tables.append(message.FieldEnd(builder))
    message.LayoutStartFieldsVector(builder, len(tables))
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    message.LayoutStart(builder)
    message.LayoutAddFields(builder, vector)
    builder.Finish(message.LayoutEnd(builder), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def decode(data):
    """Returns the fields of a header. Raises ValueError unless header_read in C accepts the very
    same bytes."""
    _verify(data)
    layout = message.Layout.GetRootAs(data, 0)  # flatc's stub is wrong: Name() is bytes
    fields = []
    for i in range(layout.FieldsLength()):
        field = layout.Fields(i)
        try:
            name = field.Name().decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"header: expected field names in UTF-8, found {error.object!r}"
            ) from error
        fields.append(Field(name, field.Dtype(), field.Kind(), field.Rank()))
    _check_fields(fields)
    return fields


def _check_fields(fields):
    if len(fields) > _MAX_FIELDS:
        raise ValueError(f"header: expected at most {_MAX_FIELDS} fields, found {len(fields)}")
    names = set()
    for field in fields:
        if field.name in names:
            raise ValueError(f"header: expected names that differ, found {field.name!r} twice")
        names.add(field.name)


# The flatbuffers package reads what it is given: these are the rules of the C++ Verifier, as in
# header.c.


def _verify(data):
    """Raises ValueError unless every offset and length leads to something inside the header."""
    if not 12 <= len(data) <= _MAX_BYTES or data[4:8] != _IDENTIFIER:
        raise ValueError(
            f"header: expected a FlatBuffer with the identifier SHMB, found {data[:12]!r}"
        )
    layout = _follow(data, 0)
    fields, *_ = _slots(data, layout)
    _expect(fields > 0, layout)
    vector = _follow(data, fields)
    count = _load(data, vector, "<I")
    _expect(_within(data, vector, 4 + 4 * count) and count <= _MAX_FIELDS, vector)
    name_bytes = 0
    for i in range(count):
        table = _follow(data, vector + 4 + 4 * i)
        name, *numbers = _slots(data, table)
        _expect(name > 0, table)
        string = _follow(data, name)
        length = _load(data, string, "<I")
        _expect(_within(data, string, 4 + length + 1) and data[string + 4 + length] == 0, string)
        for number in numbers:
            _expect(_within(data, number, 1), number)
        name_bytes += length
        # Names that overlap could take the square of the size to read.
        _expect(name_bytes <= len(data), string)


def _slots(data, table):
    """Where the table holds its first four values; 0 for those that it does not hold."""
    vtable = table - _load(data, table, "<i")
    size = _load(data, vtable, "<H")
    _expect(size % 2 == 0 and _within(data, vtable, size), vtable)
    known = min(max(size // 2 - 2, 0), 4)
    offsets = struct.unpack_from(f"<{known}H", data, vtable + 4) + (0,) * (4 - known)
    name, dtype, kind, rank = (table + offset if offset else 0 for offset in offsets)
    return name, dtype, kind, rank


def _follow(data, at):
    """Where the offset at `at` leads."""
    offset = _load(data, at, "<I")
    _expect(0 < offset < 2**31 and _within(data, at + offset, 1), at)
    return at + offset


def _load(data, at, code):
    size = struct.calcsize(code)
    _expect(at % size == 0 and _within(data, at, size), at)
    (value,) = struct.unpack_from(code, data, at)
    return int(value)


def _within(data, at, length):
    return length < len(data) and 0 <= at <= len(data) - length


def _expect(valid, at):
    if not valid:
        raise ValueError(
            f"header: expected a valid FlatBuffer, found a bad offset or length at byte {at}"
        )

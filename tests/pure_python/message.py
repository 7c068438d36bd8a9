"""The header and the body of a message."""

import struct
from math import prod
from typing import NamedTuple

from support import header

from .errors import Error, Status, Violation, require
from .segment import up

TENSOR, STRING, STRINGS, RAGGED = range(4)
LISTS = STRINGS, RAGGED
DTYPES = (
    *("any", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16"),
)
SIZES = (0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2)


class Field(NamedTuple):
    """A named value: a tensor, a string, or a list with the offsets of its rows."""

    name: str
    dtype: int
    kind: int
    rank: int
    dims: tuple
    values: bytes
    offsets: tuple = ()


def write_header(layout):
    try:
        return header.encode([header.Field(*field) for field in layout])
    except ValueError as error:
        raise Error(Status.INVALID, str(error)) from None


def read_header(data):
    try:
        return tuple((f.name, f.dtype, f.kind, f.rank) for f in header.decode(data))
    except ValueError as error:
        raise Violation(str(error)) from None


def place(layout, dims):
    """Each field with its dims and the positions of its offsets and values, and the body's size."""
    end, places = 0, []
    for name, dtype, kind, rank in layout:
        is_list = kind in LISTS
        own, dims = dims[: rank + is_list], dims[rank + is_list :]
        require(all(dim >= 0 for dim in own), "a dim is negative")
        shape, offsets = own[is_list:], up(end, 64)
        elements = prod(max(dim, 1) for dim in shape)
        require(elements * SIZES[dtype] <= 2**40, "the dims are too large")
        values = up(offsets + 8 * (own[0] + 1), 64) if is_list else offsets
        end = values + prod(shape) * SIZES[dtype]
        places.append((Field(name, dtype, kind, rank, own, b""), offsets, values, end))
    return places, end


def read_field(body, field, offsets, values, end):
    rows = ()
    if field.kind in LISTS:
        rows = struct.unpack_from(f"={field.dims[0] + 1}q", body, offsets)
        require(rows[0] == 0 and rows[-1] == field.dims[1], "a list's offsets have wrong ends")
        require(all(a <= b for a, b in zip(rows, rows[1:], strict=False)), "offsets decrease")
    return field._replace(values=bytes(body[values:end]), offsets=rows)

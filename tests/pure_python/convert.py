"""Advice in the dtype that the runner wants."""

import struct

from .errors import Error, Status
from .message import DTYPES, SIZES, STRING, STRINGS

CODES = " BbhiqBHIQefd"  # of struct, by dtype; bfloat16, the upper half of a float32, has none


def pack(dtype, numbers):
    if dtype < len(CODES):
        return struct.pack(f"={len(numbers)}{CODES[dtype]}", *numbers)
    return b"".join(struct.pack("<f", number)[2:] for number in numbers)


def unpack(dtype, data):
    if dtype < len(CODES):
        return struct.unpack(f"={len(data) // SIZES[dtype]}{CODES[dtype]}", data)
    halves = (data[i : i + 2] for i in range(0, len(data), 2))
    return [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]


def convert(field, dtype):
    """The same values in another dtype."""
    if field.dtype == dtype:
        return field
    name = DTYPES[dtype]
    if field.kind in (STRING, STRINGS):
        raise Error(Status.MISMATCH, f"the advice is text, but the runner wants {name}")
    old = unpack(field.dtype, field.values)
    if name == "bool" and not {0, 1}.issuperset(old):
        raise Error(Status.INEXACT, f"{old} as bool")
    try:
        data = pack(dtype, [float(n) if "float" in name else int(n) for n in old])
    except (struct.error, OverflowError, ValueError) as error:  # too large, or NaN
        raise Error(Status.INEXACT, f"{old} as {name}: {error}") from None
    new = unpack(dtype, data)
    if any(a != b and (a == a or b == b) for a, b in zip(old, new, strict=True)):
        raise Error(Status.INEXACT, f"{old} is {new} as {name}")
    return field._replace(dtype=dtype, values=data)

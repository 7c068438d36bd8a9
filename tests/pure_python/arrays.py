"""Fields from and to the values of shmbridge's Python API."""

import ml_dtypes
import numpy as np

from shmbridge import Ragged

from .message import DTYPES, RAGGED, STRING, STRINGS, TENSOR, Field

UINT8 = DTYPES.index("uint8")


def to_field(name, value):
    if isinstance(value, str):
        data = value.encode(errors="surrogateescape")
        return Field(name, UINT8, STRING, 1, (len(data),), data)
    if isinstance(value, list):
        rows = [text.encode(errors="surrogateescape") for text in value]
        offsets = tuple(sum(map(len, rows[:i])) for i in range(len(rows) + 1))
        return Field(name, UINT8, STRINGS, 1, (len(rows), offsets[-1]), b"".join(rows), offsets)
    values = np.asarray(value.values if isinstance(value, Ragged) else value)
    dtype, data = DTYPES.index(values.dtype.name), values.tobytes()
    if isinstance(value, Ragged):
        dims, offsets = (len(value), *values.shape), tuple(map(int, value.offsets))
        return Field(name, dtype, RAGGED, values.ndim, dims, data, offsets)
    return Field(name, dtype, TENSOR, values.ndim, values.shape, data)


def to_value(field):
    if field.kind == STRING:
        return field.values.decode(errors="surrogateescape")
    if field.kind == STRINGS:
        ends = zip(field.offsets, field.offsets[1:], strict=False)
        return [field.values[a:b].decode(errors="surrogateescape") for a, b in ends]
    name, shape = DTYPES[field.dtype], field.dims[field.kind == RAGGED :]
    values = np.frombuffer(field.values, getattr(ml_dtypes, name, name)).reshape(shape)
    return Ragged(values, np.array(field.offsets)) if field.kind == RAGGED else values

"""TensorFlow's SequenceExample and TFRecord, as bytes.

A SequenceExample is a Protobuf message (tensorflow/core/example/example.proto): here features of the whole, and by name a list of steps,
each a list of numbers. A TFRecord file is a row of records: uint64 length, uint32 masked CRC-32C of the length, the data, and the data's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from typing import BinaryIO

import numpy as np

from shmbridge._values.tensor import Array

BYTES, FLOATS, INTEGERS = 1, 2, 3  # of a Feature's oneof


def sequence_example(context: Mapping[str, str], lists: Mapping[str, Array]) -> bytes:
    """The message. context: texts by name. lists: arrays [steps, *shape] by name; floats become float32, all else int64."""
    texts = [
        _entry(name, _field(BYTES, _field(1, text.encode(errors="surrogateescape"))))
        for name, text in context.items()
    ]
    steps = [
        _entry(name, b"".join(_field(1, feature) for feature in _features(values)))
        for name, values in lists.items()
    ]
    return (_field(1, b"".join(texts)) if texts else b"") + _field(2, b"".join(steps))


def _features(values: Array) -> list[bytes]:
    """A Feature for each step."""
    rows = values.reshape(len(values), math.prod(values.shape[1:]))
    if values.dtype.kind in "biu":
        return [_field(INTEGERS, _field(1, row)) for row in _varints(rows)]
    with np.errstate(over="ignore"):  # as TensorFlow has it, too large is infinite
        floats = rows.astype("<f4")
    return [_field(FLOATS, _field(1, row.tobytes())) for row in floats]


def _varints(rows: Array) -> list[bytes]:
    """Each row's integers, seven bits a byte, the lowest first; 64-bit two's complement."""
    values = rows.astype(np.int64).view(np.uint64).reshape(-1, 1)
    parts = (values >> np.arange(0, 70, 7, dtype=np.uint64)).astype(np.uint8) & 0x7F
    lengths = np.where(parts.any(1), 10 - np.argmax(parts[:, ::-1] != 0, axis=1), 1)
    places = np.arange(10)
    parts |= np.where(places < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    data = parts[places < lengths[:, None]].tobytes()
    ends = np.concatenate([[0], np.cumsum(lengths.reshape(rows.shape).sum(1))]).tolist()
    return [data[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


def _entry(name: str, value: bytes) -> bytes:
    """An entry of a map."""
    return _field(1, _field(1, name.encode(errors="surrogateescape")) + _field(2, value))


def _field(number: int, data: bytes) -> bytes:
    """A field that has a length."""
    size, left = bytearray(), len(data)
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return b"".join([bytes([number << 3 | 2]), size, data])


# ---- TFRecord ----


def write_tfrecords(file: BinaryIO, records: Iterable[bytes]) -> None:
    """Appends each as a record."""
    for data in records:
        length = struct.pack("<Q", len(data))
        head = length + struct.pack("<I", masked(crc32c(length)))
        file.write(b"".join([head, data, struct.pack("<I", masked(crc32c(data)))]))


def masked(crc: int) -> int:
    """A CRC as a TFRecord has it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C. The CRC of a sum is the sum of the CRCs, so the data's rows are taken side by side, and then put one behind another."""
    data = b"Td\x1fd" + data  # four bytes that make of 0 what a CRC begins with, which is all ones
    width = int(len(data) ** 0.5)
    rows = -(-len(data) // width)
    padded = np.frombuffer(
        data.rjust(rows * width, b"\0"), np.uint8
    )  # zeros in front change nothing
    crcs = np.zeros(rows, np.uint32)
    behind = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    for column in padded.reshape(rows, width).T:
        crcs = TABLE[(crcs ^ column) & 0xFF] ^ (crcs >> 8)
    for _ in range(width):  # what each byte of a CRC becomes behind a row of zeros
        behind = TABLE[behind & 0xFF] ^ (behind >> 8)
    low = behind.tolist()
    crc = 0
    for row in crcs.tolist():
        crc = (
            low[0][crc & 0xFF] ^ low[1][crc >> 8 & 0xFF] ^ low[2][crc >> 16 & 0xFF] ^ low[3][crc >> 24] ^ row
        )  # fmt: skip
    return crc ^ 0xFFFFFFFF

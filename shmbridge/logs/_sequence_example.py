"""TensorFlow's SequenceExample and TFRecord, as bytes.

A SequenceExample is a Protobuf message (tensorflow/core/example/example.proto): here features of
the whole, and by name a list of steps, each a list of numbers. A TFRecord file is a row of records:
uint64 length, uint32 masked CRC-32C of the length, the data, and the data's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from shmbridge._values.tensor import Array

try:
    import google_crc32c
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass
except ImportError as error:
    raise ImportError(
        "TensorFlow's formats need protobuf and google-crc32c: pip install 'shmbridge[tfrecord]' "
        f"({error})"
    ) from error

LIST = FieldDescriptorProto.LABEL_REPEATED
# TensorFlow's messages, their fields in order. Here every field is a list: a list of one has the
# bytes of a single value, a list of entries those of a map. A key need not be UTF-8.
MESSAGES: dict[str, dict[str, Any]] = {
    "BytesList": {"value": FieldDescriptorProto.TYPE_BYTES},
    "FloatList": {"value": FieldDescriptorProto.TYPE_FLOAT},
    "Int64List": {"value": FieldDescriptorProto.TYPE_INT64},
    "Feature": {"bytes": "BytesList", "floats": "FloatList", "integers": "Int64List"},
    "Named": {"key": FieldDescriptorProto.TYPE_BYTES, "value": "Feature"},
    "Features": {"feature": "Named"},
    "FeatureList": {"feature": "Feature"},
    "NamedList": {"key": FieldDescriptorProto.TYPE_BYTES, "value": "FeatureList"},
    "FeatureLists": {"feature_list": "NamedList"},
    "SequenceExample": {"context": "Features", "feature_lists": "FeatureLists"},
}


def _message() -> Any:
    file = FileDescriptorProto(name="example.proto", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            of = {"type_name" if isinstance(kind, str) else "type": kind}
            message.field.add(name=field, number=number, label=LIST, **of)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("SequenceExample"))


SequenceExample = _message()


def sequence_example(context: Mapping[str, str], lists: Mapping[str, Array]) -> bytes:
    """The message. context: texts by name. lists: arrays [steps, *shape] by name; floats become
    float32, all else int64."""
    example = SequenceExample()
    if context:
        features = example.context.add().feature
        for name, text in context.items():
            features.add(key=[_bytes(name)]).value.add().bytes.add(value=[_bytes(text)])
    named = example.feature_lists.add().feature_list
    for name, values in lists.items():
        steps = named.add(key=[_bytes(name)]).value.add().feature
        whole = values.dtype.kind in "biu"
        with np.errstate(over="ignore"):  # as TensorFlow has it, too large is infinite
            rows = values.astype(np.int64 if whole else np.float32)
        for row in rows.reshape(len(rows), math.prod(rows.shape[1:])).tolist():
            step = steps.add()
            (step.integers if whole else step.floats).add(value=row)
    return bytes(example.SerializeToString())


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def write_tfrecords(file: BinaryIO, records: Iterable[bytes]) -> None:
    """Appends each as a record."""
    for data in records:
        length = struct.pack("<Q", len(data))
        file.write(b"".join([length, _masked_crc(length), data, _masked_crc(data)]))


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

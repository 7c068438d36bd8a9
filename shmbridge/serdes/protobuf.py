"""Protobuf: messages of schemas/bridge.proto, or of the user's own class.

serdes=protobuf                                           any message, without loss
serdes=protobuf&request=module:Class&advice=module:Class  the user's own messages; the module is
imported
"""

import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge._native import lib
from shmbridge._values import tensor
from shmbridge._values.fields import code_of, dtype_of
from shmbridge.errors import (
    CorruptError,
    InvalidError,
    TooLargeError,
    UnsupportedError,
    raise_status,
)

try:
    from google.protobuf.message import DecodeError, EncodeError
except ImportError as error:
    raise UnsupportedError(
        f"serdes=protobuf needs the package protobuf: pip install shmbridge[protobuf] ({error})"
    ) from error
from shmbridge._generated import bridge_pb2
from shmbridge.serdes._base import SerDes
from shmbridge.serdes._user_message import UserMessage

schema: Any = bridge_pb2  # its classes are made at run time


def parse(kind: Any, data: bytes) -> Any:
    """A protobuf message of these bytes; CorruptError."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptError(
            f"expected the bytes of a protobuf message {kind.DESCRIPTOR.full_name}: {error}"
        ) from error


def _write(name: str, value: Any) -> Any:
    field = tensor.as_field(name, value)
    out = schema.Field(name=name, dtype=field.code, kind=field.kind)
    data = field.values.tobytes()
    if field.kind == lib.SHMB_STRINGS and field.offsets is not None:
        ends = field.offsets.tolist()
        out.strings.extend(data[a:b] for a, b in zip(ends, ends[1:], strict=False))
        return out
    out.data = data
    if field.kind != lib.SHMB_STRING:
        out.dims.extend(field.values.shape)
    if field.offsets is not None:
        out.offsets.extend(field.offsets.tolist())
    return out


def _array(field: Any) -> tensor.Array:
    """The values of a tensor or ragged list: a view of the field's bytes, once their number is the
    right one."""
    dims = tuple(field.dims)
    if len(dims) > lib.SHMB_MAX_RANK or min(dims, default=0) < 0:
        raise InvalidError(f"expected 0 to {lib.SHMB_MAX_RANK} dims of 0 or more, found {dims}")
    dtype = dtype_of(field.dtype)
    if dtype is None:
        raise InvalidError("expected a dtype, found ANY")
    if math.prod(size or 1 for size in dims) * dtype.itemsize > 1 << 40:
        raise InvalidError(
            f"expected dims that make 1 TiB at most, zeros counted as ones, found {dims}"
        )
    if math.prod(dims) * dtype.itemsize != len(field.data):
        raise InvalidError(
            f"a {dtype} of dims {dims} takes {math.prod(dims) * dtype.itemsize} bytes, found "
            f"{len(field.data)}"
        )
    data = np.frombuffer(field.data, np.uint8)
    if dtype.kind == "b" and np.any(data > 1):
        raise InvalidError("expected a bool of bytes 0 and 1, found others")
    return data.view(dtype).reshape(dims)


def _read(field: Any) -> Any:
    """The value of a schema.Field. Errors: ValueError."""
    has = {part for part in ("dims", "data", "offsets", "strings") if len(getattr(field, part))}
    known = {
        lib.SHMB_TENSOR: {"dims", "data"},
        lib.SHMB_STRING: {"data"},
        lib.SHMB_STRINGS: {"strings"},
        lib.SHMB_RAGGED: {"dims", "data", "offsets"},
    }.get(field.kind)
    if known is None or has - known:
        raise InvalidError(
            f"no field of kind {field.kind} has {', '.join(sorted(has)) or 'nothing'}"
        )
    if field.kind == lib.SHMB_TENSOR:
        return _array(field)[()]
    if field.kind == lib.SHMB_RAGGED:
        if not field.dims:
            raise InvalidError("expected the dims of a ragged list, found none")
        return tensor.Ragged(_array(field), np.array(field.offsets, np.int64))
    if field.dtype != lib.SHMB_UINT8:
        raise InvalidError(f"expected text of dtype UINT8 ({lib.SHMB_UINT8}), found {field.dtype}")
    texts = [field.data] if field.kind == lib.SHMB_STRING else field.strings
    found = tensor.StringList(text.decode(errors="surrogateescape") for text in texts)
    return found[0] if field.kind == lib.SHMB_STRING else found


class Protobuf(SerDes):
    """request, advice: the user's own message class, or its name "module:Class"; None: Message of
    bridge.proto."""

    def __init__(self, request: Any = None, advice: Any = None) -> None:
        self._request, self._advice = (
            UserMessage(_import(kind) if isinstance(kind, str) else kind) if kind else None
            for kind in (request, advice)
        )

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        return self.encode_request(fields, None)

    def decode(self, data: bytes) -> Mapping[str, Any]:
        return self.decode_request(data)[0]

    def encode_request(self, fields: Mapping[str, Any], want: np.dtype[Any] | None) -> bytes:
        return _encode(self._request, fields, code_of(want))

    def decode_request(self, data: bytes) -> tuple[Mapping[str, Any], np.dtype[Any] | None]:
        return _decode(self._request, data)

    def encode_advice(self, advice: Mapping[str, Any]) -> bytes:
        if self._advice and list(advice) == ["advice"]:
            advice = {self._advice.only_field("advice"): advice["advice"]}
        return _encode(self._advice, advice, lib.SHMB_ANY)

    def encode_failure(self, status: int, text: str) -> bytes:
        """What decode_advice raises as the error of that status; for Message of bridge.proto
        alone."""
        failure = schema.Failure(status=status, text=text.encode(errors="replace").decode())
        return bytes(schema.Message(failure=failure).SerializeToString())

    def decode_advice(self, data: bytes, want: np.dtype[Any] | None) -> Mapping[str, Any]:
        return _decode(self._advice, data)[0]


def _encode(user: UserMessage | None, fields: Mapping[str, Any], want: int) -> bytes:
    if user:
        message = user.of(fields)
    else:
        message = schema.Message(
            fields=[_write(name, value) for name, value in fields.items()], want=want
        )
    try:
        return bytes(message.SerializeToString())
    except (EncodeError, ValueError) as error:
        if message.IsInitialized():
            raise TooLargeError(f"protobuf holds messages of less than 2 GiB: {error}") from error
        raise InvalidError(
            f"a required field is missing: {', '.join(message.FindInitializationErrors())}"
        ) from error


def _decode(user: UserMessage | None, data: bytes) -> tuple[dict[str, Any], np.dtype[Any] | None]:
    if user:
        return user.values(parse(user.kind, data)), None
    message, values = parse(schema.Message, data), dict[str, Any]()
    if message.HasField("failure"):
        raise_status(message.failure.status, message.failure.text)
    for field in message.fields:
        if field.name in values:
            raise CorruptError(f'"{field.name}" comes twice in a protobuf message')
        try:
            values[field.name] = _read(field)
            tensor.as_field(field.name, values[field.name])  # its name, and a list's offsets
        except ValueError as error:
            raise CorruptError(f'"{field.name}" of a protobuf message: {error}') from error
    try:
        return values, dtype_of(message.want)
    except InvalidError as error:
        raise CorruptError(f"the dtype that a protobuf message wants: {error}") from error


def _import(name: str) -> Any:
    """What "module:Class" names. Errors: InvalidError."""
    module, _, path = name.partition(":")
    try:
        return getattr(importlib.import_module(module), path)
    except Exception as error:
        raise InvalidError(
            f"expected MODULE:CLASS that can be imported, found {name!r}: {type(error).__name__}: "
            f"{error}"
        ) from error


PLUGIN = Protobuf

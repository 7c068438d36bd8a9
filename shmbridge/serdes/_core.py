"""The C core's SerDes, and messages between C and Python."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge import plugins, tensor
from shmbridge._native import ffi, lib
from shmbridge.errors import InexactError, NoMemoryError, raise_status
from shmbridge.serdes import SerDes


def value_of(t: Any) -> Any:
    """A shmb_tensor's value, copied: as tensor.copy_value's, but a numpy scalar, which knows its dtype, for rank 0."""
    if t.rank or t.kind != lib.SHMB_TENSOR:
        return tensor.copy_value(t)
    dtype = tensor.dtype_of(t.dtype)
    return np.frombuffer(bytes(ffi.buffer(t.data, dtype.itemsize)), np.uint8).view(dtype)[0]


def values_of(tensors: Any, count: int) -> dict[str, Any]:
    """The values of shmb_tensor[count] by name, copied."""
    return {ffi.string(tensors[i].name).decode(): value_of(tensors[i]) for i in range(count)}


def bytes_of(data: Any, size: int) -> bytes:
    """A copy of C's bytes."""
    return bytes(ffi.buffer(data, size)) if size else b""


def dtype_of(want: int) -> np.dtype[Any] | None:
    """The dtype of a wish; None for none."""
    return tensor.dtype_of(want) if want else None


def code_of(want: np.dtype[Any] | None) -> int:
    """A wish's code."""
    return lib.SHMB_ANY if want is None else tensor.code_of(np.dtype(want), "want")


def as_wanted(advice: Mapping[str, Any], want: int) -> list[tensor.Field]:
    """The advice as fields, one alone of the wanted dtype. Errors: InexactError, InvalidError."""
    fields = [tensor.as_field(name, value) for name, value in advice.items()]
    if not want or len(fields) != 1:
        return fields
    exact = tensor.exactly(fields[0], want)
    if exact is None:
        raise InexactError(
            f'the advice "{fields[0].name}" of dtype {fields[0].values.dtype} is not exactly a {tensor.dtype_name(want)}, which was asked for'
        )
    return [exact]


class Core(SerDes):
    """A SerDes of the C core, or one that is registered there."""

    def __init__(self, name: str) -> None:
        codec = lib.shmb_codec_new(name.encode())
        if codec == ffi.NULL:
            raise NoMemoryError(f"no memory for the SerDes {name!r}")
        self._codec = ffi.gc(codec, lib.shmb_codec_free)
        self._lock = threading.Lock()

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        return self._encode(lib.SHMB_REQUEST, fields, lib.SHMB_ANY)

    def decode(self, data: bytes) -> Mapping[str, Any]:
        return self._decode(lib.SHMB_REQUEST, data, lib.SHMB_ANY)[0]

    def encode_request(self, fields: Mapping[str, Any], want: np.dtype[Any] | None) -> bytes:
        return self._encode(lib.SHMB_REQUEST, fields, code_of(want))

    def decode_request(self, data: bytes) -> tuple[Mapping[str, Any], np.dtype[Any] | None]:
        return self._decode(lib.SHMB_REQUEST, data, lib.SHMB_ANY)

    def encode_advice(self, advice: Mapping[str, Any]) -> bytes:
        return self._encode(lib.SHMB_ADVICE, advice, lib.SHMB_ANY)

    def decode_advice(self, data: bytes, want: np.dtype[Any] | None) -> Mapping[str, Any]:
        return self._decode(lib.SHMB_ADVICE, data, code_of(want))[0]

    def _encode(self, side: int, values: Mapping[str, Any], want: int) -> bytes:
        codec, data, size = self._codec, ffi.new("const void **"), ffi.new("size_t *")
        fields = [tensor.as_field(name, value) for name, value in values.items()]
        with self._lock:
            lib.shmb_codec_clear(codec)
            for field in fields:
                tensor.write_field(lambda *a: lib.shmb_codec_add(codec, *a), field)
            self._check(lib.shmb_codec_encode(codec, side, want, data, size))
            return bytes_of(data[0], size[0])

    def _decode(
        self, side: int, data: bytes, want: int
    ) -> tuple[dict[str, Any], np.dtype[Any] | None]:
        count, wanted = ffi.new("int64_t *"), ffi.new("shmb_dtype *", want)
        with self._lock:
            self._check(
                lib.shmb_codec_decode(self._codec, side, ffi.from_buffer(data), len(data), wanted)
            )
            fields = lib.shmb_codec_fields(self._codec, count)
            return values_of(fields, count[0]), dtype_of(wanted[0])

    def _check(self, status: int) -> None:
        if status:
            plugins.raise_carried()
            raise_status(status, lib.shmb_codec_error(self._codec))

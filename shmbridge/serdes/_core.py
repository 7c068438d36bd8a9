"""The C core's SerDes."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._values import tensor
from shmbridge._values.fields import bytes_of, code_of, dtype_of, values_of
from shmbridge.errors import NoMemoryError, raise_status
from shmbridge.serdes._base import SerDes


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

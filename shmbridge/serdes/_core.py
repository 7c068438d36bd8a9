"""SerDes of the C core in Python, and of Python in the core's registry."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._values import tensor
from shmbridge._values.fields import as_wanted, bytes_of, code_of, dtype_of, values_of
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


# ---- Callbacks from C, from any thread ----


def _encode(context: Any, side: int, fields: Any, count: int, want: int, sink: Any) -> int:
    try:
        serdes: SerDes = ffi.from_handle(context)
        values = values_of(fields, count)
        data = (
            serdes.encode_advice(values) if side else serdes.encode_request(values, dtype_of(want))
        )
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"expected bytes of {type(serdes).__name__}, found {type(data).__name__}"
            )
        data = bytes(data)
        to = lib.shmb_sink_bytes(sink, len(data))
        if to != ffi.NULL:
            ffi.memmove(to, data, len(data))
        return int(lib.SHMB_OK)  # the sink knows if there was no memory
    except BaseException as error:
        return plugins.failed(sink, error, lib.SHMB_INVALID)


def _decode(context: Any, side: int, data: Any, size: int, want: int, sink: Any) -> int:
    try:
        serdes: SerDes = ffi.from_handle(context)
        copy = bytes_of(data, size)  # a view that someone keeps would outlive C's memory
        if side:
            fields = as_wanted(serdes.decode_advice(copy, dtype_of(want)), want)
        else:
            values, wanted = serdes.decode_request(copy)
            fields = as_wanted(values, lib.SHMB_ANY)
            lib.shmb_sink_want(sink, code_of(wanted))
        for field in fields:
            tensor.write_field(lambda *a: lib.shmb_sink_field(sink, *a), field)
        return int(lib.SHMB_OK)
    except BaseException as error:
        return plugins.failed(sink, error, lib.SHMB_CORRUPT)


ffi.def_extern("shmb_python_encode", error=lib.SHMB_INVALID)(_encode)
ffi.def_extern("shmb_python_decode", error=lib.SHMB_INVALID)(_decode)


def register(name: str, serdes: SerDes) -> None:
    calls = lib.shmb_python_encode, lib.shmb_python_decode
    plugins.register("shmb_serdes", lib.shmb_register_serdes, name, serdes, *calls)

"""A Python SerDes in the C core's registry: the callbacks that C calls, from any thread."""

from typing import Any

from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._values import tensor
from shmbridge._values.fields import as_wanted, bytes_of, code_of, dtype_of, values_of
from shmbridge.serdes._base import SerDes


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

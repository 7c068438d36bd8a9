"""Messages between the C core and what Python code adds to it: shmb_tensors as values, and values
as fields."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._values import dtypes, tensor


def values_of(tensors: Any, count: int) -> dict[str, Any]:
    """The values of shmb_tensor[count] by name, copied."""
    return {
        ffi.string(tensors[i].name).decode(): tensor.copy_value(tensors[i]) for i in range(count)
    }


class Values(Mapping[str, Any]):
    """The values of shmb_tensor[count] by name, each copied when it is first read. Before C's
    memory changes, `detach` copies all of them, for a caller that keeps them or still reads."""

    def __init__(self, tensors: Any, count: int) -> None:
        self._tensors, self._count = tensors, count
        self._values: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            with self._lock:
                if name not in self._values:
                    found = self._tensors[self._index(name)]
                    self._values[name] = tensor.copy_value(found)
        return self._values[name]

    def _index(self, name: str) -> int:
        found = -1
        if self._tensors is not None and isinstance(name, str) and "\0" not in name:
            text = name.encode(errors="surrogatepass")
            found = lib.shmb_tensor_named(self._tensors, self._count, text)
        if found < 0:
            raise KeyError(name)
        return int(found)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            if self._tensors is None:
                return iter(list(self._values))
            found = self._tensors[0 : self._count] if self._count else ()
            return iter([ffi.string(t.name).decode() for t in found])

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return repr(dict(self))

    def detach(self) -> None:
        values = {name: self[name] for name in self}
        with self._lock:
            self._values, self._tensors = values, None


def bytes_of(data: Any, size: int) -> bytes:
    return bytes(ffi.buffer(data, size)) if size else b""


def dtype_of(want: int) -> np.dtype[Any] | None:
    """The dtype of a wish; None for none."""
    return dtypes.dtype_of(want) if want else None


def code_of(want: np.dtype[Any] | None) -> int:
    return lib.SHMB_ANY if want is None else dtypes.code_of(np.dtype(want), "want")


def as_wanted(advice: Mapping[str, Any], want: int) -> list[tensor.Field]:
    """As `tensor.as_asked`, of values by name. Errors: also InvalidError."""
    return tensor.as_asked([tensor.as_field(name, value) for name, value in advice.items()], want)


def as_tensors(fields: Sequence[tensor.Field]) -> tuple[Any, list[Any]]:
    """The fields as shmb_tensor[len(fields)], and the memory that these point to, which the caller
    keeps, as the fields' arrays."""
    tensors = ffi.new("shmb_tensor[]", len(fields))
    behind: list[Any] = []
    for i, field in enumerate(fields):
        t, values, offsets = tensors[i], field.values, field.offsets
        behind += ffi.new("char[]", field.name.encode()), ffi.new("int64_t[]", field.dims or (0,))
        t.name, t.dims = behind[-2:]
        t.dtype, t.kind, t.rank, t.size = field.code, field.kind, values.ndim, values.size
        t.data = ffi.cast("void *", values.ctypes.data)
        if offsets is not None:
            t.offsets = ffi.cast("int64_t *", offsets.ctypes.data)
    return tensors, behind

"""Positions of features in a request."""

from __future__ import annotations

from typing import Any

from shmbridge._native import ffi, lib
from shmbridge._values import dtypes, tensor
from shmbridge._values.tensor import Array


class FieldLocation:
    """The position of one feature in its slot's body."""

    __slots__ = ("bytes", "code", "dtype", "index", "kind", "name", "rows", "shape", "start")

    def __init__(self, index: int, t: Any, body: int) -> None:
        self.index = index
        self.name: str = ffi.string(t.name).decode()
        self.kind: int = t.kind
        self.code: int = t.dtype
        self.dtype = dtypes.dtype_of(t.dtype)
        self.shape = tensor.shape_of(t)
        self.rows: int | None = t.dims[0] if t.offsets != ffi.NULL else None  # None: no list
        self.start = int(ffi.cast("uintptr_t", t.data)) - body
        self.bytes: int = t.size * lib.shmb_dtype_size(t.dtype)

    def array(self, flat: Array) -> Array:
        """The feature as an array over the body's bytes; its base is `flat`, as is that of all that
        derive from it."""
        return flat[self.start : self.start + self.bytes].view(self.dtype).reshape(self.shape)

    def form(self) -> tuple[Any, ...]:
        """What must be equal for two requests to be in one batch."""
        text = self.kind in (lib.SHMB_STRING, lib.SHMB_STRINGS)
        return self.name, self.kind, self.code, () if text else self.shape

    def spec(self) -> str:
        text = {lib.SHMB_STRING: "str", lib.SHMB_STRINGS: "list of str"}.get(self.kind)
        ragged = "ragged " if self.kind == lib.SHMB_RAGGED else ""
        sizes = ", ".join(map(str, self.shape))
        return (
            f"{self.name}: {text}"
            if text
            else f"{ragged}{self.name}: {dtypes.dtype_name(self.code)}[{sizes}]"
        )


def locations_of(message: Any, body: int) -> dict[str, FieldLocation]:
    """Those of all features, by name."""
    found = [FieldLocation(i, message.tensors[i], body) for i in range(message.count)]
    return {place.name: place for place in found}

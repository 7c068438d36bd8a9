"""Where features lie in the requests of a key, and arrays over them."""

import sys
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge import _fastpath
from shmbridge._native import ffi, lib
from shmbridge._values import dtypes, tensor
from shmbridge._values.dtypes import TensorSpec
from shmbridge._values.tensor import Array
from shmbridge.errors import RunnerGoneError


def channel_of(key: int) -> int:
    """The channel that a request came through: its runner's as long as that is connected."""
    return int((key & lib.SHMB_KEY_PLACE) >> lib.SHMB_KEY_SLOT_BITS)


class FieldLocation:
    """The position of one feature in its slot's body."""

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


class Layout(_fastpath.Layout):
    """What the requests of one key share. There is one request at a time."""

    __slots__ = ("_body", "_kept", "host", "places", "runner", "signature")

    def __init__(self, host: Any, key: int, message: Any, kind: type) -> None:
        self.host = host
        self._address, self.key, self._type = host._address, key, kind
        self.direct = host._advice is None
        self.copy = bool(key & lib.SHMB_KEY_COPY)
        self._body, self._kept = message.body, [False]
        self._read(message)
        self.lists = any(place.rows is not None for place in self.places.values())
        self.texts = any(place.kind == lib.SHMB_STRING for place in self.places.values())
        self.signature = ", ".join(place.spec() for place in self.places.values())
        # Unlike two signatures, two of these never read alike by a name's choice.
        self._form = sys.intern(repr([place.form() for place in self.places.values()]))
        self.runner: tuple[int, str, int] | None = None  # pid, label, number
        if not self.copy:
            self._ready = self._roots

    def _read(self, message: Any) -> None:
        body = int(ffi.cast("uintptr_t", self._body))
        found = [FieldLocation(i, message.tensors[i], body) for i in range(message.count)]
        self.places = {place.name: place for place in found}
        self._placed = message.placed

    def _place_anew(self) -> None:
        """A string of another length came: what follows it may lie elsewhere."""
        message = lib.shmb_host_message(self.host._h, self.key)
        if message == ffi.NULL:
            raise RunnerGoneError(
                "the runner died or disconnected: this request's strings are gone"
            )
        self._read(message)
        self._roots.clear()

    def root(self, key: Any, place: FieldLocation) -> Array:
        """The array over the slot: of a tensor by its name, of lists' values by their place. All
        that derive from it have a reference to it, as its own base is no array."""
        array = self._roots.get(key)
        if array is None:
            array = np.ndarray(place.shape, place.dtype, self._slot, place.start)
            self._roots[key] = array
        return array

    def mismatch(self, specs: Mapping[str, TensorSpec] | None) -> str:
        """Why a request is not what the host expects; "" where it is."""
        if specs is None:
            return ""
        fits = self.places.keys() == specs.keys() and all(
            place.kind == lib.SHMB_TENSOR
            and place.code == dtypes.code_of(specs[name].dtype, name)
            and specs[name].matches(specs[name].dtype, place.shape)
            for name, place in self.places.items()
        )
        expected = ", ".join(map(str, specs.values()))
        return "" if fits else f"the host expects {expected}; the runner sent {self.signature}"

    def explain(self, error: TypeError) -> None:
        """Says in numpy's error what to write instead of float(request["x"]) for an x of shape
        [1]."""
        if not str(error).endswith("be converted to Python scalars"):
            return
        line = traceback.extract_tb(error.__traceback__)[-1].line or ""
        single = [p for p in self.places.values() if p.shape and set(p.shape) == {1}]
        named = [place for place in single if place.name in line] or single
        if named:
            place = max(named, key=lambda place: len(place.name))
            error.args = (
                f"use request[{place.name!r}].item() for {place.spec()}, which has one element: "
                f"{error}",
            )

    def _enter(self) -> None:
        """The slot is a request's again: what arrays over it have in common."""
        memory, h, key, kept = self.host._memory, self.host._h, self.key, [False]

        def died(_body: Any) -> None:
            if memory and kept[0]:
                lib.shmb_host_release(h, key)

        self._kept = kept
        self._slot = ffi.buffer(ffi.gc(self._body, died), self.host._plan.request_bytes)

    def _leave(self) -> None:
        """An array over the slot keeps the slot until the last one has died."""
        self._kept[0] = True
        self._roots.clear()
        del self._slot

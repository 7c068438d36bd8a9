"""One question of one runner: features as arrays where they lie in shared memory, and the reply."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from shmbridge import _hot, tensor
from shmbridge._native import ffi, lib
from shmbridge.errors import (
    InexactError,
    InvalidError,
    MismatchError,
    RunnerGoneError,
    TooLargeError,
    raise_status,
)
from shmbridge.tensor import Array

if TYPE_CHECKING:
    from shmbridge.host import Host

_MISSING: Any = object()
# Reference counts tell nothing certain on a free-threaded Python: there everything is a copy.
_free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
_hot.setup(
    *(
        int(ffi.cast("uintptr_t", ffi.addressof(lib, f"shmb_host_{name}")))
        for name in ("poll", "receive", "reply_i64", "reply_f64", "release")
    )
)
COPY_BIT = 1 << 15  # of a key: what is read must be copied before the reply


_SCALARS = (
    np.int64,
    np.float64,
)  # the same on the wire as Python's numbers, which go a shorter way


class _Place:
    """Where one feature lies in its slot's body."""

    __slots__ = ("bytes", "code", "index", "kind", "name", "rows", "shape", "start")

    def __init__(self, index: int, t: Any, body: int) -> None:
        self.index = index
        self.name: str = ffi.string(t.name).decode()
        self.kind: int = t.kind
        self.code: int = t.dtype
        self.shape = tensor.shape_of(t)
        self.rows: int = t.dims[0] if t.offsets != ffi.NULL else 0
        self.start = int(ffi.cast("uintptr_t", t.data)) - body
        self.bytes: int = t.size * lib.shmb_dtype_size(t.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return tensor.dtype_of(self.code)

    def array(self, flat: Array) -> Array:
        """The feature as an array over the body's bytes; its base is `flat`, as is that of all that derive from it."""
        return flat[self.start : self.start + self.bytes].view(self.dtype).reshape(self.shape)

    def spec(self) -> str:
        text = {lib.SHMB_STRING: "str", lib.SHMB_STRINGS: "list of str"}.get(self.kind)
        ragged = "ragged " if self.kind == lib.SHMB_RAGGED else ""
        sizes = ", ".join(map(str, self.shape))
        return (
            f"{self.name}: {text}"
            if text
            else f"{ragged}{self.name}: {tensor.dtype_name(self.code)}[{sizes}]"
        )


def _anyone_holds(holder: Any, flat_refs: int, root_refs: int) -> bool:
    """Has `holder._flat`, or one of `holder._roots`, more references than it has when nobody else holds it?"""
    roots = holder._roots
    if getrefcount(holder._flat) > flat_refs + len(roots):
        return True
    for array in roots.values():  # noqa: SIM110 (a generator costs more than all the rest)
        if getrefcount(array) > root_refs:
            return True
    return False


def _usual_refs() -> tuple[int, int]:
    """What getrefcount says in _anyone_holds when nobody else holds an array: Pythons differ in what a call adds."""

    class Nobody:
        def __init__(self, roots: int) -> None:
            self._flat = np.empty(1)
            self._roots = {i: self._flat[:] for i in range(roots)}

    flat = next(n for n in range(9) if not _anyone_holds(Nobody(0), n, 0))
    return flat, next(n for n in range(9) if not _anyone_holds(Nobody(1), flat, n))


_FLAT_REFS, _ROOT_REFS = _usual_refs()


class Request(Mapping[str, Any]):
    """The features that a runner sent, by name, until `reply` or `fail` answers them.

    `request["x"]` is a numpy array in shared memory: no copy is made, and it stays valid and unchanged for as long as it
    is kept, also after the reply. Where that cannot be (the runner's buffers are bound to the slot, or every other slot
    is still held by kept arrays) it is a copy. Strings come as str, lists of strings as list, ragged lists as `Ragged`.
    A request that is never answered is answered with an error: by the loop over the host when it asks for the next one
    and nobody else holds this one, else when it is collected. Any thread may reply.
    """

    __slots__ = (
        "__weakref__",
        "_copy",
        "_flat",
        "_h",
        "_host",
        "_key",
        "_open",
        "_places",
        "_ready",
        "_roots",
        "_signature",
    )

    def __init__(self, host: Host, key: int, message: Any) -> None:
        self._host = host
        self._h = host._h
        self._key = key
        self._open = True
        self._copy = bool(key & COPY_BIT) or _free_threaded
        body = int(ffi.cast("uintptr_t", message.body))
        self._flat = np.frombuffer(host._memory, np.uint8, message.body_bytes, body - host._base)
        places = [_Place(i, message.tensors[i], body) for i in range(message.count)]
        self._places = {place.name: place for place in places}
        # Arrays over the slot, made once and used again by later requests like this one: a tensor's by its name, the
        # values of strings and lists by their place.
        self._roots: dict[Any, Array] = {}
        self._signature: str | None = None
        self._ready: dict[Any, Array] = (
            {} if self._copy else self._roots
        )  # what can be returned as it is

    # ---- Read ----

    def __getitem__(self, name: str) -> Any:
        array = self._ready.get(name)
        # In this order: a reply in another thread counts this reference, or is over.
        if array is not None and self._open:
            return array
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __repr__(self) -> str:
        return f"<Request {self.signature}{'' if self._open else ', answered'}>"

    @property
    def signature(self) -> str:
        """Names, dtypes and shapes of the features."""
        if self._signature is None:
            self._signature = ", ".join(place.spec() for place in self._places.values())
        return self._signature

    @property
    def wanted(self) -> np.dtype[Any] | None:
        """The dtype that the runner asked for its one advice to be in; None: any, or the runner has gone."""
        message = lib.shmb_host_message(self._h, self._key)
        return tensor.dtype_of(message.want) if message != ffi.NULL and message.want else None

    def view(self, name: str) -> Array:
        """The tensor in shared memory even where `request[name]` would be a copy. It is valid until the reply only."""
        self._check_open()
        return self._root(name, self._place(name))

    def _place(self, name: str) -> _Place:
        try:
            return self._places[name]
        except KeyError:
            raise KeyError(f"no feature {name!r}; there are: {self.signature or 'none'}") from None

    def _root(self, key: Any, place: _Place) -> Array:
        array = self._roots.get(key)
        if array is None:
            array = self._roots[key] = place.array(self._flat)
        return array

    def _make(self, name: str) -> Any:
        place = self._place(name)
        self._check_open()
        if place.kind == lib.SHMB_TENSOR:
            array = self._root(name, place)
            if self._copy:
                self._ready[name] = array = array.copy()
            self._check_open()
            return array
        values = self._root(place, place)
        if place.kind == lib.SHMB_STRING:
            return tensor.text_of(values)
        offsets = np.empty(place.rows + 1, np.int64)
        if not lib.shmb_host_offsets(
            self._h, self._key, place.index, ffi.cast("int64_t *", offsets.ctypes.data)
        ):
            raise RunnerGoneError("the runner died or left: this request's lists are gone")
        if place.kind == lib.SHMB_STRINGS:
            return tensor.texts_of(values, offsets)
        return tensor.Ragged(values.copy() if self._copy else values, offsets)

    # ---- Reply ----

    def reply(self, advice: Any = _MISSING, **named: Any) -> bool:
        """Answers: one value, named "advice", or several by name. Takes numpy arrays and scalars, Python numbers, str,
        lists, Ragged, and anything with DLPack. Converted to the dtype that the runner asked for when every value is
        exactly representable, else both sides get InexactError.

        Returns False when the runner has gone meanwhile. Other errors: InvalidError (no advice, a value that is no
        tensor, answered already; the request stays open for another try), MismatchError (not the host's advice specs),
        TooLargeError (both sides), ClosedError, ForkedError.
        """
        self._check_open()
        kind = type(advice)
        if (kind is int or kind is float) and not named and self._host._advice is None:
            self._open = False  # first: from here on no thread takes a new view
            keep = self._held()
            send = _hot.reply_i64 if kind is int else _hot.reply_f64
            try:
                status = send(self._host._address, self._key, keep, advice)
            except OverflowError:  # beyond int64
                status = lib.SHMB_INVALID
            if status != lib.SHMB_INVALID:
                return self._sent(status, keep) if status or keep else True
            self._open = True  # or another thread is building a reply on this channel: the long way waits for it
        if kind in _SCALARS and not named and self._host._advice is None:
            return self.reply(advice.item())
        if advice is not _MISSING:
            named = {"advice": advice, **named}
        if not named:
            raise InvalidError("expected advice, as reply(value) or reply(name=value), found none")
        return self._reply_fields([tensor.as_field(name, value) for name, value in named.items()])

    def fail(self, error: BaseException | str) -> bool:
        """Answers with an error, which the runner gets as SHMB_MODEL (ModelError) with this text; a MismatchError or
        InexactError stays one."""
        self._check_open()
        status = (
            error.status if isinstance(error, (MismatchError, InexactError)) else lib.SHMB_MODEL
        )
        try:
            text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        except Exception:  # its __str__ fails
            text = type(error).__name__
        return self._fail(status, text if status == lib.SHMB_MODEL else str(error))

    def _answer_error(self, error: BaseException | str) -> None:
        if self._open:
            self.fail(error)

    def _fail(self, status: int, text: str) -> bool:
        data = text.encode(errors="replace")
        keep = self._finish()
        return self._sent(
            lib.shmb_host_reply_error(self._h, self._key, keep, status, data, len(data)), keep
        )

    def _finish(self) -> bool:
        """Marks the request answered; do views of its slot live on?"""
        self._open = False  # first: from here on no thread takes a new view
        return self._held()

    def _sent(self, status: int, keep: bool) -> bool:
        if keep:
            self._host._kept[self._key] = self  # until its views are dead: then the slot goes back
        if status == lib.SHMB_RUNNER_GONE:
            return False
        if status:
            raise_status(status, lib.shmb_host_error(self._h, self._key))
        return True

    def _reply_fields(self, fields: list[tensor.Field]) -> bool:
        host, h, key = self._host, self._h, self._key
        try:
            fields = self._fit(fields)
        except (MismatchError, TooLargeError) as error:
            self._fail(error.status, str(error))
            raise
        message = lib.shmb_host_message(h, key)
        want = message.want if message != ffi.NULL else lib.SHMB_ANY
        if want and len(fields) == 1:
            exact = tensor.exactly(fields[0], want)
            if exact is None:
                dtype = tensor.dtype_of(want)
                text = f'the advice "{fields[0].name}" of dtype {fields[0].values.dtype} is not exactly a {dtype}, which the runner asked for'
                if self._fail(lib.SHMB_INEXACT, text):
                    raise_status(lib.SHMB_INEXACT, text)
                return False
            fields = [exact]
        with host._building:
            self._check_open()
            status = lib.shmb_host_reply_begin(h, key)
            if not status:
                try:
                    for field in fields:
                        tensor.write_field(lambda *a: lib.shmb_host_reply_add(h, key, *a), field)
                except BaseException as error:
                    self._fail(lib.SHMB_MODEL, f"{type(error).__name__}: {error}")
                    raise
            keep = self._finish()
            if status and not keep:
                lib.shmb_host_release(h, key)
            return self._sent(status or lib.shmb_host_reply_send(h, key, keep), keep)

    def _fit(self, fields: list[tensor.Field]) -> list[tensor.Field]:
        """Checks the fields against the host's advice specs, and converts them to those dtypes where that is exact."""
        specs = self._host._advice
        if specs is None:
            return fields
        found = {field.name: field for field in fields}
        fitted = []
        for spec in specs.values():
            field = found.pop(spec.name, None)
            exact = tensor.exactly(field, tensor.code_of(spec.dtype, spec.name)) if field else None
            if exact is None or not spec.matches(exact.values.dtype, exact.values.shape):
                break
            fitted.append(exact)
        if found or len(fitted) < len(specs):
            raise MismatchError(
                f"expected advice {', '.join(map(str, specs.values()))}; found {tensor.describe({f.name: f.values for f in fields})}"
            )
        return fitted

    # ---- Lifetime ----

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidError(
                "this request has been answered: read and reply before that (arrays that were taken before stay valid)"
            )

    def _held(self) -> bool:
        """Does anyone else hold an array over the slot? Derived arrays hold `_flat` or the array that they derive from."""
        return not self._copy and _anyone_holds(self, _FLAT_REFS, _ROOT_REFS)

    def _place_in_segment(self) -> int:
        """Channel and slot, in the order of addresses."""
        return self._key & (COPY_BIT - 1)

    def _renew(self) -> None:
        """The next message of the same key."""
        self._open = True
        if self._copy:
            self._ready.clear()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._drop()

    def _drop(self) -> None:
        if not self._host._closed:
            self._fail(lib.SHMB_DROPPED, "the host let this request go without a reply")

"""One question of a runner: features as arrays in shared memory, and the reply."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from shmbridge import _fastpath, errors
from shmbridge._host.layout import FieldLocation, Layout
from shmbridge._native import ffi, lib
from shmbridge._values import dtypes, tensor
from shmbridge._values.fields import as_tensors

_MISSING: Any = ...  # as _fastpath.reply has it


class Request(_fastpath.Question, Mapping[str, Any]):
    """The features that a runner sent, by name, until `reply` or `fail` answers them.

    `request["x"]` is a numpy array in shared memory, without a copy. It stays valid and unchanged
    while you keep it, even after the reply. It is a copy if the runner's buffers are bound to the
    slot, or kept arrays hold every other slot. Strings are returned as str, lists of strings as
    list, ragged lists as `Ragged`.

    A request is yours as long as you refer to it. The end of the last reference to one without a
    reply answers it with DroppedError. An exception that leaves `with request:` is its answer. Any
    thread may reply.
    """

    __slots__ = ("__weakref__",)
    _layout: Layout

    @property
    def _host(self) -> Any:
        return self._layout.host

    @property
    def _h(self) -> Any:
        return self._layout.host._h

    @property
    def _key(self) -> int:
        return self._layout.key

    def __enter__(self) -> Request:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._open and isinstance(error, Exception):
            self.fail(error)

    # ---- Read ----

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.places)

    def __len__(self) -> int:
        return len(self._layout.places)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.places

    def __repr__(self) -> str:
        return f"<Request {self.signature}{'' if self._open else ', answered'}>"

    @property
    def signature(self) -> str:
        """Names, dtypes and shapes of the features."""
        return self._layout.signature

    @property
    def wanted(self) -> np.dtype[Any] | None:
        """The dtype that the runner wants for its single advice. None: any, or a dtype that numpy
        lacks here (bfloat16 without ml_dtypes; advice is still converted to it), or the runner is
        gone."""
        message = lib.shmb_host_message(self._h, self._key)
        return dtypes.dtype_if_known(message.want) if message != ffi.NULL else None

    @property
    def label(self) -> str:
        """The runner's description of itself, such as the source file that it compiles
        (`connect(label=)`, a URL's `label`). "" if there is none, or the question did not come over
        shm://. Do not trust it."""
        return self._said()[1]

    @property
    def runner(self) -> int:
        """The number of the runner, unique for this host. Each compilation opens a runner for each
        kind of decision. 0: the runner is gone."""
        return self._said()[2]

    @property
    def pid(self) -> int:
        """The process id that the runner reported, in its own container. Do not trust it. 0: the
        runner is gone."""
        return self._said()[0]

    def _said(self) -> tuple[int, str, int]:
        if self._layout.runner is None:  # the same for every request of this key
            number, pid, label = ffi.new("uint64_t *"), ffi.new("uint32_t *"), ffi.new("char[256]")
            if not lib.shmb_host_runner(self._h, self._key, number, pid, label):
                return 0, "", 0
            text = tensor.text_of(np.frombuffer(ffi.string(label), np.uint8))
            self._layout.runner = pid[0], text, number[0]
        return self._layout.runner

    def _place(self, name: str) -> FieldLocation:
        try:
            return self._layout.places[name]
        except KeyError:
            near = difflib.get_close_matches(str(name), self._layout.places, 1)
            help_ = (
                f"did you mean {near[0]!r}?" if near else f"there are: {self.signature or 'none'}"
            )
            if name == "inlining_default":
                help_ = "run with --include-default (LLVM 22)"
            raise KeyError(f"no feature {name!r}; {help_}") from None

    def _make(self, name: str) -> Any:
        place = self._place(name)
        self._check_open()
        if place.kind == lib.SHMB_TENSOR:
            array = self._layout.root(name, place)
            if self._layout.copy:
                self._layout._ready[name] = array = array.copy()
            self._check_open()
            return array
        if place.kind == lib.SHMB_STRING:
            return self._text(place)
        values = self._layout.root(place, place)
        assert place.rows is not None
        offsets = np.empty(place.rows + 1, np.int64)
        if not lib.shmb_host_offsets(
            self._h, self._key, place.index, ffi.cast("int64_t *", offsets.ctypes.data)
        ):
            raise errors.RunnerGoneError(
                "the runner died or disconnected: this request's lists are gone"
            )
        if place.kind == lib.SHMB_STRINGS:
            return tensor.texts_of(values, offsets)
        return tensor.Ragged(values.copy() if self._layout.copy else values, offsets)

    def _text(self, place: FieldLocation) -> str:
        text = _fastpath.text(self, place.index)
        if text is None:  # the host is closed, or the parent's
            self._layout._place_anew()
            place = self._place(place.name)
            text = tensor.text_of(self._layout.root(place, place))
        self._check_open()
        return text

    # ---- Reply ----

    def reply(self, advice: Any = _MISSING, **named: Any) -> bool:
        """Answers the request.

        Values are numpy arrays and scalars, Python numbers, str, lists, `Ragged`, and objects with
        DLPack. A single value is converted to the dtype that the runner wants, if that is exact.
        Otherwise the runner gets InexactError (MismatchError for text), and the logger "shmbridge"
        reports that once; it never ends the host's loop.

        Args:
            advice: One value, named "advice", or a dict of several by name.
            named: Several values by name.

        Returns:
            False if the runner did not receive it, because it is gone or wants another dtype.

        Raises:
            InvalidError: No advice, a value that is no tensor, or already answered. The request
                stays open, so that you can try again.
            MismatchError: Not what the host's `advice` requires. The runner also gets this error.
            TooLargeError: It does not fit a slot. The runner also gets this error.
            ClosedError, ForkedError: The host is closed, or was inherited through fork.
        """
        done = _fastpath.reply(self, advice, named)
        if done is True:
            return True
        if done is not None:
            return self._sent(done)
        self._check_open()
        if isinstance(advice, Mapping):
            return self.reply(**advice, **named)
        if advice is not _MISSING:
            named = {"advice": advice, **named}
        if not named:
            raise errors.InvalidError(
                "expected advice, as reply(value) or reply(name=value), found none"
            )
        return self._reply_fields([tensor.as_field(name, value) for name, value in named.items()])

    def fail(self, error: BaseException | str) -> bool:
        """Answers with an error, which the runner gets as ModelError (SHMB_MODEL).

        Args:
            error: A text, or an exception, whose type and text are sent. A MismatchError or
                InexactError keeps its type.

        Returns:
            False if the runner is gone.
        """
        self._check_open()
        if isinstance(error, TypeError):
            self._layout.explain(error)
        if isinstance(error, (errors.MismatchError, errors.InexactError)):
            return self._fail(error.status, str(error))
        return self._fail(
            lib.SHMB_MODEL, error if isinstance(error, str) else errors.error_text(error)
        )

    def _fail(self, status: int, text: str) -> bool:
        data = text.encode(errors="replace")
        keep = self._finish()
        return self._sent(
            lib.shmb_host_reply_error(self._h, self._key, keep, status, data, len(data)), keep
        )

    def _finish(self) -> bool:
        """Marks the request answered; do views of its slot live on?"""
        self._open = False  # first: from here on no thread takes a new view
        return self._layout.held()

    def _sent(self, status: int, keep: bool = False) -> bool:
        if keep:
            self._layout._leave()
        if status == lib.SHMB_RUNNER_GONE:
            return False
        if status:
            try:
                errors.raise_status(status, lib.shmb_host_error(self._h, self._key))
            except errors.InexactError as error:
                self._host._conversion_failed(error)  # the runner's error, not the loop's
                return False
        return True

    def _reply_fields(self, fields: list[tensor.Field]) -> bool:
        h, key = self._h, self._key
        try:
            fields = self._fit(fields)
        except (errors.MismatchError, errors.TooLargeError) as error:
            self._fail(error.status, str(error))
            raise
        message = lib.shmb_host_message(h, key)
        want = message.want if message != ffi.NULL else lib.SHMB_ANY
        try:
            fields = tensor.as_asked(fields, want)
        except (errors.MismatchError, errors.InexactError) as error:
            if self._fail(error.status, str(error)):
                self._host._conversion_failed(error)
            return False
        tensors, _behind = as_tensors(fields)
        self._check_open()
        keep = self._finish()
        return self._sent(lib.shmb_host_reply(h, key, keep, tensors, len(fields)), keep)

    def _fit(self, fields: list[tensor.Field]) -> list[tensor.Field]:
        """Checks the fields against the host's advice specs, and converts them to those dtypes
        where that is exact."""
        specs = self._host._advice
        if specs is None:
            return fields
        found = {field.name: field for field in fields}
        fitted = []
        for spec in specs.values():
            field = found.pop(spec.name, None)
            exact = tensor.exactly(field, dtypes.code_of(spec.dtype, spec.name)) if field else None
            if exact is None or not spec.matches(exact.values.dtype, exact.values.shape):
                break
            fitted.append(exact)
        if found or len(fitted) < len(specs):
            raise errors.MismatchError(
                f"expected advice {', '.join(map(str, specs.values()))}; found "
                f"{tensor.describe({f.name: f.values for f in fields})}"
            )
        return fitted

    # ---- Lifetime ----

    def _check_open(self) -> None:
        if not self._open:
            raise errors.InvalidError(
                "this request has been answered: read and reply before that (arrays that were "
                "taken before stay valid)"
            )

    def _drop(self) -> None:
        if not self._host._closed:
            self._fail(lib.SHMB_DROPPED, "the host discarded this request without a reply")


# ---- For batches, loops, relays and environments ----


def fail_with_status(request: Request, error: Exception) -> None:
    """Answers a request that is open with an error, whose status the runner gets, too."""
    if request._open:
        request._fail(
            error.status if isinstance(error, errors.ShmbridgeError) else lib.SHMB_MODEL, str(error)
        )


def detach(request: Request) -> bool:
    """From here on the end of this object does not answer the request, whose key still can. False:
    it has been answered."""
    was_open, request._open = request._open, False
    return was_open

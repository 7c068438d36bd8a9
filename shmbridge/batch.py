"""Requests of several runners, answered together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from shmbridge._native import lib
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.request import Request
from shmbridge.tensor import Array, Ragged


class _Rows:
    """Exports evenly spaced rows of several slots as one strided array, and holds the slots while it lives."""

    __slots__ = ("__array_interface__", "_flats")

    def __init__(self, first: Array, step: int, flats: list[Array]) -> None:
        self._flats = flats
        self.__array_interface__ = {
            "version": 3,
            "data": (first.__array_interface__["data"][0], False),
            "typestr": f"|u{first.dtype.itemsize}"
            if first.dtype.itemsize == 1
            else f"|V{first.dtype.itemsize}",
            "shape": (len(flats), *first.shape),
            "strides": (step, *first.strides),
        }


class Batch(Mapping[str, Any]):
    """Requests with the same names, dtypes and shapes. `batch["x"]` has one more dim than a request's, in front.

    len() and iteration are those of the features; `batch.requests` are the requests, `batch.size` their number.
    """

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        self._arrays: dict[str, Any] = {}

    @property
    def size(self) -> int:
        """How many requests: 1 or more."""
        return len(self.requests)

    def __iter__(self) -> Iterator[str]:
        return iter(self.requests[0])

    def __len__(self) -> int:
        return len(self.requests[0])

    def __repr__(self) -> str:
        return f"<Batch of {self.size}: {self.requests[0].signature}>"

    def __getitem__(self, name: str) -> Any:
        """One strided array over the runners' slots where they lie evenly, else a gathered one; it may be kept. Strings
        and lists come as a list with one value for each request."""
        if name not in self._arrays:
            place = self.requests[0]._place(name)
            if place.kind != lib.SHMB_TENSOR:
                return [request[name] for request in self.requests]
            rows = self._strided([request[name] for request in self.requests])
            self._arrays[name] = self.gather(name) if rows is None else rows
        return self._arrays[name]

    def gather(self, name: str) -> Array:
        """The tensor of all requests as one new C-contiguous array, as ONNX Runtime wants it."""
        return np.stack([request[name] for request in self.requests])

    def _strided(self, rows: list[Array]) -> Array | None:
        if any(request._copy for request in self.requests):
            return None
        starts = [row.__array_interface__["data"][0] for row in rows]
        steps = {b - a for a, b in pairwise(starts)} or {rows[0].nbytes}
        if len(steps) > 1:
            return None
        exported = _Rows(rows[0], steps.pop(), [request._flat for request in self.requests])
        return np.asarray(exported).view(rows[0].dtype)

    def reply(self, advice: Any = None, **named: Any) -> None:
        """Answers every request: row i of each array, or element i of each list, goes to request i.

        InvalidError where there are not as many rows as requests; then none is answered. A row that its runner cannot
        have (TooLargeError, InexactError, ...) is raised when the others are answered.
        """
        if advice is not None:
            named = {"advice": advice, **named}
        if not named:
            raise InvalidError(
                "expected advice, as reply(values) or reply(name=values), found none"
            )
        self._arrays.clear()  # or they would hold every slot
        columns = {name: rows_of(name, values, self.size) for name, values in named.items()}
        failed: list[ShmbridgeError] = []
        for i, request in enumerate(self.requests):
            try:
                request.reply(**{name: rows[i] for name, rows in columns.items()})
            except ShmbridgeError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def fail(self, error: BaseException | str) -> None:
        """Answers every request that has no reply yet with an error."""
        self._answer_error(error)

    def _answer_error(self, error: BaseException | str) -> None:
        for request in self.requests:
            if request._open:
                request.fail(error)

    def _end(self) -> None:
        """Its turn is over: the requests may be used again."""
        for request in self.requests:
            if request._open:
                request._drop()
        self.requests = []
        self._arrays.clear()


def rows_of(name: str, values: Any, size: int) -> Any:
    """One value for each request, as something to index."""
    if not isinstance(values, (np.ndarray, list, tuple, Ragged)):
        values = np.from_dlpack(values) if hasattr(values, "__dlpack__") else np.asarray(values)
    rows = "a single value" if isinstance(values, np.ndarray) and values.ndim == 0 else len(values)
    if rows != size:
        raise InvalidError(f'"{name}": expected {size} rows, one for each request, found {rows}')
    plain = (
        isinstance(values, np.ndarray)
        and values.ndim == 1
        and values.dtype in (np.int64, np.float64)
    )
    return values.tolist() if plain else values

"""Requests of several runners, answered together."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np

from shmbridge import _fastpath
from shmbridge._host.request import Request
from shmbridge._native import lib
from shmbridge._values.tensor import Ragged
from shmbridge.errors import InvalidError, ShmbridgeError


class Batch(_fastpath.Questions, Mapping[str, Any]):
    """Requests with the same names, dtypes and shapes. The arrays `batch["x"]` have an additional
    first dim, and are copies, which you may keep. Strings and lists are returned as a list with
    one value for each request.

    A table, like pandas' DataFrame: len(batch) is the number of rows, one for each request.
    Iteration, keys(), items(), `in`, dict(batch) and passing it as keyword arguments work on the
    features, by name. `batch.requests` are the requests, which are answered with DroppedError when
    the last reference to the batch ends. An exception that leaves `with batch:` is the answer.
    """

    __slots__ = ("__weakref__",)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self.fail(error)

    @property
    def labels(self) -> list[str]:
        """Each request's `label`, a description of its runner."""
        return [request.label for request in self.requests]

    def __iter__(self) -> Iterator[str]:
        return iter(self.requests[0])

    # Mapping's own views would be as long as the batch.

    def keys(self) -> KeysView[str]:
        """The features' names."""
        return self.requests[0].keys()

    def items(self) -> ItemsView[str, Any]:
        """Names and arrays."""
        return dict(self).items()

    def values(self) -> ValuesView[Any]:
        """The arrays."""
        return dict(self).values()

    def __repr__(self) -> str:
        return f"<Batch of {len(self)}: {self.requests[0].signature}>"

    def _make(self, name: str) -> Any:
        place = self.requests[0]._place(name)
        if place.kind != lib.SHMB_TENSOR:
            return [request[name] for request in self.requests]
        array = np.empty((len(self.requests), *place.shape), place.dtype)
        if place.dtype.isbuiltin != 1 or not self._gather(place.index, array):
            array = np.stack([request[name] for request in self.requests])
        self._arrays[name] = array
        return array

    def reply(self, advice: Any = None, **named: Any) -> None:
        """Answers every request: row i of each array, or element i of each list, is the reply to
        request i.

        Args:
            advice: One value, named "advice", or a dict of several by name.
            named: Several values by name.

        Raises:
            InvalidError: The number of rows differs from the number of requests. No request is
                answered then.
            ShmbridgeError: A runner cannot receive its row (TooLargeError, ...). The others are
                answered.
        """
        left = self._reply_rows(Request, advice, named)
        if left is True:
            return
        columns = self._columns(named if advice is None else {**by_name(advice), **named})
        failed: list[ShmbridgeError] = []
        for i, outcome in left or [(i, None) for i in range(len(self.requests))]:
            try:
                request = self.requests[i]
                if outcome is None:
                    request.reply(**{name: rows[i] for name, rows in columns.items()})
                else:
                    request._sent(outcome)
            except ShmbridgeError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _columns(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The advice by name, to index by request."""
        if not named:
            raise InvalidError(
                "expected advice, as reply(values) or reply(name=values), found none"
            )
        size = len(self.requests)
        return {name: rows_of(name, values, size) for name, values in named.items()}

    def fail(self, error: BaseException | str) -> None:
        """Answers every request that has no reply yet with an error.

        Args:
            error: An exception, or a text.
        """
        for request in self.requests:
            if request._open:
                request.fail(error)


def by_name(advice: Any) -> dict[str, Any]:
    """What a model returned, or a reply was given."""
    return dict(advice) if isinstance(advice, Mapping) else {"advice": advice}


def rows_by_request(batch: Batch, named: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The advice of each request."""
    columns = batch._columns(named)
    return [{name: rows[i] for name, rows in columns.items()} for i in range(len(batch.requests))]


def rows_of(name: str, values: Any, size: int) -> Any:
    """One value for each request, as something to index."""
    if not isinstance(values, (np.ndarray, list, tuple, Ragged)):
        values = np.from_dlpack(values) if hasattr(values, "__dlpack__") else np.asarray(values)
    rows = "a single value" if isinstance(values, np.ndarray) and values.ndim == 0 else len(values)
    if rows != size:
        raise InvalidError(f'"{name}": expected {size} rows, one for each request, found {rows}')
    return values

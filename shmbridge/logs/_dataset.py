"""Training logs as stacked arrays: an index of the records' positions, and reads of requested
rows."""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shmbridge._values.tensor import Array
from shmbridge.errors import CorruptError, InvalidError, MismatchError
from shmbridge.logs._reader import Input, Layout, Spec, TornError, events, read_layout, usual_record
from shmbridge.logs._writer import Context

CHUNK = 1 << 24  # bytes of a read
GAP = 1 << 12  # bytes between two records that are read rather than skipped
TENSORS, SCORE, OBSERVATION, CONTEXT, FILE = range(5)  # columns of the index


@dataclass(frozen=True)
class Columns:
    """Rows of logs, stacked. The caller owns the arrays.

    Attributes:
        features: The features, by name: [rows, ...].
        advice: The advice, by name: [rows, ...].
        score: The rewards, [rows, ...], if there are any.
        context: The compiled units: str or None, object[rows].
        observation: Each row's number in its context: int64[rows].
        file: The index of each row's file: int64[rows].
        label: Each row's label, for example the source file: str, object[rows].
    """

    features: Mapping[str, Array]
    advice: Mapping[str, Array]
    score: Array | None
    context: Array
    observation: Array
    file: Array
    label: Array


class Dataset:
    """The records of logs that have the same layout, as rows in the order of the files.

    Only an index of 40 bytes per record is kept in memory. So the files may be larger than memory:
    read parts of them.

    It can be pickled, and several processes can read it. Records that are appended later belong to
    the next Dataset.

    Args:
        paths: A log, or several.

    Attributes:
        layout: The contents of the headers.
        torn: A description of an incomplete end of a file, for example after a kill of the writer.
            The logger "shmbridge" also gets it.

    Raises:
        OSError: A file cannot be read.
        CorruptError: A file is no such log. The text has its name and the position.
        MismatchError: The layouts differ. The text has both.
        InvalidError: There are no paths.
    """

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        self.paths = [Path(path) for path in several]
        if not self.paths:
            raise InvalidError("expected a training log, found none")
        self.layout = read_layout(self.paths[0])
        self.torn: list[str] = []
        contexts: dict[Context, int] = {}
        index = array("q")
        for file, path in enumerate(self.paths):
            self._check(path, read_layout(path))
            try:
                self._scan(path, file, contexts, index)
            except TornError as torn:
                self.torn.append(torn.report(path))
        self._contexts = np.array([*contexts], object).reshape(-1, 2)
        self._index = np.array(index, np.int64).reshape(-1, 5)

    def _scan(self, path: Path, file: int, contexts: dict[Context, int], index: array[int]) -> None:
        usual = usual_record(self.layout)
        with Input(path) as source:
            for layout, context, number, tensors, score in events(source):
                self._check(path, layout)
                name = contexts.setdefault(context, len(contexts))
                index.extend((tensors, score, number, name, file))
                for places in source.usual(usual):
                    index.extend((*places, name, file))

    def _check(self, path: Path, layout: Layout) -> None:
        if layout != self.layout:
            raise MismatchError(
                f"{path}: expected what {self.paths[0]} has: {self.layout}; found {layout}: make "
                "a Dataset of each"
            )

    def __len__(self) -> int:
        return len(self._index)

    def columns(self, rows: slice | Sequence[int] | Array = slice(None)) -> Columns:
        """Reads and stacks rows.

        Args:
            rows: The rows, in their order: a slice, numbers, or bool[len(dataset)].

        Returns:
            New arrays.

        Raises:
            IndexError: There is no such row.
            OSError: A file cannot be read.
            CorruptError: A file is shorter than before.
        """
        if not isinstance(rows, slice):
            rows = np.asarray(rows, None if len(rows) else np.int64)
        index = self._index[rows]
        asked, advised = self.layout.features, self.layout.advice
        values = self._read(index, TENSORS, asked + advised)
        score = self._read(index, SCORE, [self.layout.score])[0] if self.layout.score else None
        return Columns(
            {spec.name: value for spec, value in zip(asked, values, strict=False)},
            {spec.name: value for spec, value in zip(advised, values[len(asked) :], strict=True)},
            score,
            self._contexts[index[:, CONTEXT], 0],
            index[:, OBSERVATION].copy(),
            index[:, FILE].copy(),
            self._contexts[index[:, CONTEXT], 1],
        )

    def _read(self, index: Array, column: int, specs: Sequence[Spec]) -> list[Array]:
        """A new array for each spec, with the values of these rows."""
        values = [np.empty((len(index), *spec.shape), spec.dtype) for spec in specs]
        row = np.dtype([(f"{i}", spec.dtype, spec.shape) for i, spec in enumerate(specs)])
        if not (row.itemsize and len(index)):
            return values
        for begin, end in _stretches(np.diff(index[:, FILE]) != 0):
            path, places = self.paths[index[begin, FILE]], index[begin:end, column]
            with path.open("rb", buffering=0) as file:
                for first, last in _stretches(_apart(places, row.itemsize)):
                    at, rows = int(places[first]), slice(begin + first, begin + last)
                    size = int(places[last - 1]) - at + row.itemsize
                    data = os.pread(file.fileno(), size, at)
                    if len(data) < size:
                        raise CorruptError(
                            f"{path}, byte {at}: expected {size} bytes, as there were when its "
                            f"Dataset was made, found {len(data)}"
                        )
                    # A record begins at every byte, so an array of places selects those asked for.
                    anywhere = np.ndarray((size - row.itemsize + 1,), row, data, strides=(1,))
                    found = anywhere[places[first:last] - at]
                    for i, value in enumerate(values):
                        value[rows] = found[f"{i}"]
        return values


def _stretches(ends: Array) -> Iterator[tuple[int, int]]:
    """Begin and end of each stretch of rows. ends[i]: one ends behind row i."""
    return itertools.pairwise([0, *(np.flatnonzero(ends) + 1).tolist(), len(ends) + 1])


def _apart(places: Array, size: int) -> Array:
    """Where one read does not take the next record too: it is not close behind, or in another
    CHUNK."""
    steps = np.diff(places)
    apart: Array = (steps < size) | (steps > size + GAP) | (np.diff(places // CHUNK) != 0)
    return apart

"""The reading side of training logs: shmbridge.logs says which bytes."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shmbridge._native import lib
from shmbridge._values.dtypes import TensorSpec, dtype_of
from shmbridge._values.tensor import Array
from shmbridge.errors import CorruptError
from shmbridge.logs._writer import LINE_BYTES, NOT_IN_LLVM, TYPES, Context

CODES = {name: code for code, name in TYPES.items()}
BUFFER = 1 << 16  # bytes of a read
INT64 = 1 << 63


@dataclass(frozen=True)
class Spec(TensorSpec):
    """A `TensorSpec` of the log, whose shape is fixed.

    Args:
        name: Its name.
        dtype: Its dtype.
        shape: Its shape.
    """

    shape: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of a value."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


@dataclass(frozen=True)
class Layout:
    """The contents of a log's header.

    Attributes:
        features: The features.
        advice: The advice. Empty if none was logged.
        score: The reward's spec, if there is one.
        decision: The compiler's name for the decision, if it is known.
        want: The dtype of a single advice, logged or not.
    """

    features: tuple[Spec, ...]
    advice: tuple[Spec, ...]
    score: Spec | None
    decision: str | None
    want: np.dtype[Any] | None

    def __str__(self) -> str:
        kinds = {"features": self.features, "advice": self.advice}
        kinds |= {"score": (self.score,)} if self.score else {}
        return "; ".join(f"{kind} {', '.join(map(str, specs))}" for kind, specs in kinds.items())


@dataclass(frozen=True)
class Record:
    """One observation. The arrays are read-only views of the file's bytes, perhaps not aligned.

    Attributes:
        layout: The contents of the header.
        context: The compiled unit, for example a function's name; None if the log has none.
        observation: Its number in the context.
        features: The features, by name.
        advice: The advice, by name.
        score: The reward, if there is one.
        label: The runner's label, for example the source file; "" if the log has none. If the
            compiler sent no context, the label is also the context.
    """

    layout: Layout
    context: str | None
    observation: int
    features: Mapping[str, Array]
    advice: Mapping[str, Array]
    score: Array | None
    label: str = ""

    @property
    def question(self) -> dict[str, Any]:
        """The features as the compiler sent them: with the strings "context" and "decision", where
        it did."""
        sent = None if self.label and self.context == self.label else self.context
        texts = {"context": sent, "decision": self.layout.decision}
        return {**self.features, **{name: text for name, text in texts.items() if text is not None}}


class TornError(Exception):
    """The file ends where it should not."""

    def report(self, path: Path) -> str:
        """Warns that the file is cut off. Returns the text."""
        text = f"{path}: {self}"
        logging.getLogger("shmbridge").warning("%s", text)
        return text


class Input:
    """A file of lines and bytes, which never reads more than there is."""

    def __init__(self, path: Path) -> None:
        self._file = io.BufferedReader(io.FileIO(path), BUFFER)
        self._path = path
        self._size = os.fstat(self._file.fileno()).st_size
        self._at = 0  # where what was read last begins

    def __enter__(self) -> Input:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fail(self, text: str) -> NoReturn:
        raise CorruptError(f"{self._path}, byte {self._at}: {text}")

    def ended(self) -> bool:
        return self._file.tell() >= self._size

    def line(self) -> dict[str, Any]:
        """The next line, an object of JSON."""
        self._at = self._file.tell()
        text = self._file.readline(LINE_BYTES)
        if not text.endswith(b"\n"):
            if len(text) == LINE_BYTES:
                self.fail(f"expected a line of JSON, found one of more than {LINE_BYTES} bytes")
            raise TornError(
                f"the last line, at byte {self._at}, is cut off: what came before it was read"
            )
        try:
            found = json.loads(text.decode(errors="surrogateescape"))
        except (ValueError, RecursionError) as error:
            self.fail(f"expected a line of JSON: {error}")
        if not isinstance(found, dict):
            self.fail(f"expected an object of JSON, found {type(found).__name__}")
        return found

    def skip(self, specs: Sequence[Spec]) -> int:
        """Where the values begin that follow, with a newline behind them."""
        at = self._at = self._file.tell()
        total = _nbytes(specs)
        if self._size - at <= total:
            raise TornError(
                f"the last tensors, at byte {at}, are cut off: what came before them was read"
            )
        self._file.seek(total, os.SEEK_CUR)
        if (end := self._file.read(1)) != b"\n":
            self.fail(
                f"expected {total} bytes of tensors and a newline, found {end!r} instead of the "
                "newline"
            )
        return at

    def values(self, at: int, specs: Sequence[Spec]) -> dict[str, Array]:
        """The values that begin there, by name."""
        behind, found, offset = self._file.tell(), dict[str, Array](), 0
        self._file.seek(at)
        data = self._file.read(_nbytes(specs))
        self._file.seek(behind)
        for spec in specs:
            values = np.frombuffer(data, np.uint8, spec.nbytes, offset)
            found[spec.name] = values.view(spec.dtype).reshape(spec.shape)
            offset += spec.nbytes
        return found

    def usual(self, record: re.Pattern[bytes]) -> Iterator[tuple[int, int, int]]:
        """Skips the `usual_record`s that follow, as far as the buffer has them. Where the tensors
        and the score of each begin, and its number. Without a score, its place is the record's end,
        not -1."""
        begin, end = self._file.tell(), 0
        block = self._file.peek()[: self._size - begin]
        while found := record.match(block, end):
            yield begin + found.start(2), begin + found.start(3), int(found[1])
            end = found.end()
        self._file.seek(begin + end)


def _nbytes(specs: Sequence[Spec]) -> int:
    return sum(spec.nbytes for spec in specs)


def events(file: Input) -> Iterator[tuple[Layout, Context, int, int, int]]:
    """For each observation: the layout, the context, its number, and where its tensors and its
    score begin; -1: it has none."""
    layout, context = layout_of(file, file.line()), Context()
    while not file.ended():
        event = file.line()
        if "features" in event:  # logs in a row
            layout, context = layout_of(file, event), Context()
        elif isinstance(event.get("context"), str):
            label = event.get("label")
            context = Context(event["context"], label if isinstance(label, str) else "")
        elif "observation" in event:
            number = event["observation"]
            if type(number) is not int or not -INT64 <= number < INT64:
                file.fail(f"expected the number of an observation, found {number!r:.100}")
            tensors = file.skip(layout.features + layout.advice)
            yield layout, context, number, tensors, _score(file, layout, number)
        elif event.keys() & {"context", "outcome"}:
            file.fail(f"expected an observation, or a context whose name is text, found {event}")


def usual_record(layout: Layout) -> re.Pattern[bytes]:
    """A record in the form in which LLVM and `LogWriter` write it: its number, tensors and score.
    None that is larger than BUFFER matches."""
    tensors = min(_nbytes(layout.features + layout.advice), BUFFER)
    score = b"()"
    if layout.score is not None:
        score = rb'\{"outcome":\1\}\n(.{%d})\n' % min(layout.score.nbytes, BUFFER)
    line = rb'\{"observation":(0|[1-9]\d{0,17})\}\n'
    return re.compile(line + rb"(.{%d})\n" % tensors + score, re.DOTALL)


def _score(file: Input, layout: Layout, number: int) -> int:
    if layout.score is None:
        return -1
    outcome = file.line()
    if outcome.get("outcome") != number:
        file.fail(
            f'expected {{"outcome":{number}}}, the score of the observation before, found {outcome}'
        )
    return file.skip([layout.score])


def record_of(
    file: Input, layout: Layout, context: Context, number: int, tensors: int, score: int
) -> Record:
    """An event as a record."""
    features = file.values(tensors, layout.features)
    advice = file.values(tensors + _nbytes(layout.features), layout.advice)
    spec = layout.score
    reward = file.values(score, [spec])[spec.name] if spec else None
    return Record(layout, context.name, number, features, advice, reward, context.label)


def read_layout(path: Path) -> Layout:
    """What a file's header says."""
    with Input(path) as file:
        try:
            return layout_of(file, file.line())
        except TornError:
            file.fail("expected a line of JSON with the features' specs, found the end of the file")


def layout_of(file: Input, header: dict[str, Any]) -> Layout:
    found = header.get("features")
    if not isinstance(found, list):
        file.fail('expected a header: {"features":[…]}')
    specs = tuple(_spec(file, item) for item in found)
    score = _spec(file, header["score"]) if "score" in header else None
    decision = header.get("decision")
    if decision is not None and not isinstance(decision, str):
        file.fail(f'expected text as the "decision", found {decision!r}')
    if "advice" in header:
        first = _spec(file, header["advice"])
        places = [i for i, spec in enumerate(specs) if spec.name == first.name]
        if not places:
            return Layout(_distinct(file, specs), (), score, decision or first.name, first.dtype)
        begin = places[-1]
    elif specs:
        begin, decision = len(specs) - 1, decision or specs[-1].name
    else:
        file.fail("expected at least one feature: the advice")
    advice = _distinct(file, specs[begin:])
    want = advice[0].dtype if len(advice) == 1 else None
    return Layout(_distinct(file, specs[:begin]), advice, score, decision, want)


def _distinct(file: Input, specs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        file.fail(f"expected names that differ, found {', '.join(names)}")
    return specs


def _spec(file: Input, found: Any) -> Spec:
    """A spec of the header, checked."""
    if not isinstance(found, dict):
        file.fail(f"expected a tensor's spec, found {found!r:.100}")
    name, kind, shape, dtype = (found.get(key) for key in ("name", "type", "shape", "dtype"))
    if not isinstance(name, str) or not name:
        file.fail(f"expected a tensor's name, found {name!r:.100}")
    code = CODES.get(str(kind))
    if dtype is not None:
        code, seen_as = NOT_IN_LLVM.get(str(dtype), (None, None))
        code = code if kind == seen_as else None
    if code is None:
        file.fail(
            f'"{name}": expected a type, one of {", ".join(CODES)}, found {kind!r:.100} (dtype '
            f"{dtype!r:.100})"
        )
    if (
        not isinstance(shape, list)
        or len(shape) > lib.SHMB_MAX_RANK
        or any(type(n) is not int or n < 0 for n in shape)
    ):
        file.fail(
            f'"{name}": expected a shape of at most {lib.SHMB_MAX_RANK} sizes, found {shape!r:.100}'
        )
    if math.prod(n or 1 for n in shape) >= 1 << 59:
        file.fail(f'"{name}": expected a shape that fits an address space, found {shape!r:.100}')
    return Spec(name, dtype_of(code), tuple(shape))

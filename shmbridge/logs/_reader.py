"""The reading side of training logs: shmbridge.logs says which bytes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shmbridge._native import lib
from shmbridge._values.dtypes import TensorSpec, dtype_of
from shmbridge._values.tensor import Array
from shmbridge.errors import Closing, CorruptError
from shmbridge.logs._writer import LINE_BYTES, NOT_IN_LLVM, TYPES, Context

CODES = {name: code for code, name in TYPES.items()}
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


class Input(Closing):
    """A file of lines and bytes, which never reads more than there is."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._path = path
        self._size = os.fstat(self._file.fileno()).st_size
        self._at = 0  # where what was read last begins

    def close(self) -> None:
        self._file.close()

    def fail(self, text: str) -> NoReturn:
        raise CorruptError(f"{self._path}, byte {self._at}: {text}")

    def ended(self) -> bool:
        return self._file.tell() >= self._size

    def line(self) -> dict[str, Any]:
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

    def values(self, *parts: Sequence[Spec]) -> list[dict[str, Array]]:
        """Reads the tensors of these parts, and a newline: the values of each part, by name."""
        at = self._at = self._file.tell()
        total = sum(spec.nbytes for specs in parts for spec in specs)
        if self._size - at <= total:
            raise TornError(
                f"the last tensors, at byte {at}, are cut off: what came before them was read"
            )
        data, end = self._file.read(total), self._file.read(1)
        if end != b"\n":
            self.fail(
                f"expected {total} bytes of tensors and a newline, found {end!r} instead of the "
                "newline"
            )
        found, offset = [dict[str, Array]() for _ in parts], 0
        for values, specs in zip(found, parts, strict=True):
            for spec in specs:
                array = np.frombuffer(data, np.uint8, spec.nbytes, offset)
                values[spec.name] = array.view(spec.dtype).reshape(spec.shape)
                offset += spec.nbytes
        return found


def records(file: Input) -> Iterator[Record]:
    """All that a file has. Errors: TornError at an end that is cut off."""
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
            features, advice = file.values(layout.features, layout.advice)
            score = _score(file, layout, number)
            yield Record(layout, context.name, number, features, advice, score, context.label)
        elif event.keys() & {"context", "outcome"}:
            file.fail(f"expected an observation, or a context whose name is text, found {event}")


def _score(file: Input, layout: Layout, number: int) -> Array | None:
    if layout.score is None:
        return None
    outcome = file.line()
    if outcome.get("outcome") != number:
        file.fail(
            f'expected {{"outcome":{number}}}, the score of the observation before, found {outcome}'
        )
    return file.values([layout.score])[0][layout.score.name]


def read_layout(path: Path) -> Layout:
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

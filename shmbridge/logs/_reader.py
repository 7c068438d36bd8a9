"""The reading side of training logs: shmbridge.logs says which bytes."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from shmbridge._native import lib
from shmbridge._values.dtypes import TensorSpec, dtype_of
from shmbridge._values.tensor import Array
from shmbridge.errors import CorruptError, InvalidError, MismatchError
from shmbridge.logs._writer import LINE_BYTES, NOT_IN_LLVM, TYPES, Context

CODES = {name: code for code, name in TYPES.items()}
Found = TypeVar("Found")
OBSERVATION, OUTCOME = b'{"observation":%d}\n', b'{"outcome":%d}\n'  # as they are usually written
# Alike(): records of the first read; bytes of a read; of a record.
FEW, BLOCK, LARGE = 32, 1 << 20, 1 << 16


@dataclass(frozen=True)
class Spec:
    """A tensor of the log.

    Attributes:
        name: Its name.
        dtype: Its dtype.
        shape: Its shape, which is fixed.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a value."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


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

    def check(self, expected: Mapping[str, Any] | None) -> None:
        """Checks whether a model accepts these features, before the first question. Reports all
        differences at once::

            with shmbridge.connect("onnx://policy.onnx") as runner:
                dataset.layout.check(runner.expected())

        Args:
            expected: The features that the model expects, by name: each has a dtype and a shape,
                whose sizes may be None (any), as in `Runner.expected()`. A model may have one
                additional first dim, of 1 or any size. Other features are ignored.

        Raises:
            InvalidError: `expected` is None: the runner does not know what the model expects, as
                over shared memory.
            MismatchError: The text lists the model's features and the compiler's, and those that
                differ.
        """
        if expected is None:
            raise InvalidError(
                "expected a runner that knows its model's features: onnx://, aot:// or tflite:// "
                "with the model's file"
            )
        found = {spec.name: spec for spec in self.features}
        wrong = [
            name
            for name, want in expected.items()
            if name not in found or not _takes(want, found[name])
        ]
        if wrong:
            wanted = [TensorSpec(name, want.dtype, want.shape) for name, want in expected.items()]
            raise MismatchError(
                f"the model expects {', '.join(map(str, wanted))}; the compiler sends "
                f"{', '.join(map(str, self.features)) or 'nothing'}; different: {', '.join(wrong)}"
            )


def _takes(want: Any, found: Spec) -> bool:
    spec = TensorSpec(found.name, want.dtype, want.shape)
    batched = want.shape[:1] in ((None,), (1,)) and spec.matches(found.dtype, (1, *found.shape))
    return batched or spec.matches(found.dtype, found.shape)


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
        self._file = path.open("rb")
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

    def tensors(self, specs: Sequence[Spec]) -> list[Array]:
        """A value for each spec, and the newline behind them."""
        total = self._room(specs)
        data = self._file.read(total)
        self._end_tensors(total)
        arrays, at = [], 0
        for spec in specs:
            arrays.append(
                np.frombuffer(data, np.uint8, spec.nbytes, at).view(spec.dtype).reshape(spec.shape)
            )
            at += spec.nbytes
        return arrays

    def skip(self, specs: Sequence[Spec]) -> int:
        """Where the values begin that `tensors` would read."""
        total = self._room(specs)
        self._file.seek(total, os.SEEK_CUR)
        self._end_tensors(total)
        return self._at

    def goes_on(self, number: int) -> bool:
        """Does the observation of that number follow, in the form in which LLVM and `LogWriter`
        write it?"""
        return 0 <= number < 1 << 60 and self._file.peek().startswith(OBSERVATION % number)

    def alike(self, layout: Layout, number: int) -> Array:
        """Skips records that follow with the numbers `number`, `number` + 1, ..., in that form.
        Returns where the tensors and the score of each begin: int64[n, 1 or 2]."""
        lines = [OBSERVATION]
        sizes = [sum(spec.nbytes for spec in layout.features + layout.advice)]
        if layout.score is not None:
            lines.append(OUTCOME)
            sizes.append(layout.score.nbytes)
        stride, starts, known = 0, [], list[int]()  # known: columns that hold no values
        for line, size in zip(lines, sizes, strict=True):
            starts.append(stride + len(line % number))
            known += [*range(stride, starts[-1]), starts[-1] + size]
            stride = starts[-1] + size + 1
        begin, end, found = self._file.tell(), 10 ** len(str(number)), 0
        many = FEW
        while many and stride <= LARGE:
            room = (self._size - begin) // stride - found
            many = min(2 * many, end - number - found, room, BLOCK // stride)
            rows = np.frombuffer(self._file.read(many * stride), np.uint8).reshape(-1, stride)
            wanted = [
                b"\n".join([line % n for line in lines]) + b"\n"
                for n in range(number + found, number + found + len(rows))
            ]
            same = rows[:, known] == np.frombuffer(b"".join(wanted), np.uint8).reshape(
                -1, len(known)
            )
            alike = int(np.logical_and.accumulate(same.all(axis=1)).sum())
            found += alike
            if alike < many:
                break
        self._file.seek(begin + found * stride)
        places: Array = begin + stride * np.arange(found)[:, None] + np.array(starts)
        return places

    def _room(self, specs: Sequence[Spec]) -> int:
        self._at = self._file.tell()
        total = sum(spec.nbytes for spec in specs)
        if self._size - self._at <= total:
            raise TornError(
                f"the last tensors, at byte {self._at}, are cut off: what came before them was read"
            )
        return total

    def _end_tensors(self, total: int) -> None:
        end = self._file.read(1)
        if end != b"\n":
            self.fail(
                f"expected {total} bytes of tensors and a newline, found {end!r} instead of the "
                "newline"
            )


Event = tuple[Layout, Context, int, Found, "Found | None"]


def events(file: Input, take: Callable[[Sequence[Spec]], Found]) -> Iterator[Event[Found]]:
    """For each observation: the layout, the context, its number, and what `take` makes of its
    tensors and of its score, if there is one."""
    layout = layout_of(file, file.line())
    specs = layout.features + layout.advice
    context = Context()
    while not file.ended():
        event = file.line()
        if "features" in event:  # logs in a row
            layout, context = layout_of(file, event), Context()
            specs = layout.features + layout.advice
        elif isinstance(event.get("context"), str):
            label = event.get("label")
            context = Context(event["context"], label if isinstance(label, str) else "")
        elif "observation" in event:
            number = event["observation"]
            if type(number) is not int:
                file.fail(f"expected the number of an observation, found {number!r}")
            values = take(specs)
            yield layout, context, number, values, _score(file, layout, number, take)
        elif event.keys() & {"context", "outcome"}:
            file.fail(f"expected an observation, or a context whose name is text, found {event}")


def _score(
    file: Input, layout: Layout, number: int, take: Callable[[Sequence[Spec]], Found]
) -> Found | None:
    if layout.score is None:
        return None
    outcome = file.line()
    if outcome.get("outcome") != number:
        file.fail(
            f'expected {{"outcome":{number}}}, the score of the observation before, found {outcome}'
        )
    return take([layout.score])


def record_of(
    layout: Layout, context: Context, number: int, values: list[Array], score: list[Array] | None
) -> Record:
    """An event as a record."""
    asked, advised = values[: len(layout.features)], values[len(layout.features) :]
    features = {spec.name: value for spec, value in zip(layout.features, asked, strict=True)}
    advice = {spec.name: value for spec, value in zip(layout.advice, advised, strict=True)}
    reward = score[0] if score else None
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

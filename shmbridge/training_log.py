"""LLVM's training log: what compilers asked and what they were advised, in a file.

The format is that of LLVM's TrainingLogger, which clang's and opt's -training-log=FILE write and LLVM's log_reader.py reads:

    {"features":[SPEC, …],"score":SPEC,"advice":SPEC}   once; score and advice may be missing
    {"context":"NAME"}                                  where it changes; no context at all is fine too
    {"observation":N}                                   from 0 in each context, then
    the tensors' bytes, back to back in the order of "features", in native byte order, and a newline
    {"outcome":N}                                       if there is a score: then its bytes and a newline

SPEC is {"name":"x","type":"float","port":0,"shape":[300]}. As in LLVM's training logs the advice is the last of the "features", so
any reader of that format has it. What shmbridge adds is ignored by others:

- "advice" in the header is the spec of the first advice: it and all features behind it are advice. Without it (LLVM's own
  training logs) the last feature is the advice; where no feature has its name (what LLVM writes to a channel) none was logged.
- The string feature "context" is the context. The string feature "decision" is kept as "decision" in the header, and is what
  an advice that has no name of its own is called. Other strings and lists do not fit the format: they are left out.
- bool, float16 and bfloat16, which LLVM lacks, are unsigned integers of that size whose SPEC has "dtype" too.
"""

from __future__ import annotations

import json
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shmbridge._native import lib
from shmbridge.batch import Batch, rows_of
from shmbridge.errors import ClosedError, CorruptError, InvalidError
from shmbridge.host import Model
from shmbridge.request import Request
from shmbridge.tensor import Array, Field, as_field, code_of, dtype_name, dtype_of, exactly

LINE_BYTES = 1 << 20  # of the longest line of JSON that is read
LAYOUTS = 256  # files of one log

_CODES = {
    "float": lib.SHMB_FLOAT32,
    "double": lib.SHMB_FLOAT64,
    **{
        f"{sign}int{bits}_t": getattr(lib, f"SHMB_{sign.upper()}INT{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
_TYPES = {code: name for name, code in _CODES.items()}
_FOREIGN = {  # dtypes that LLVM lacks, and as what it sees them
    dtype_name(code): (code, name)
    for code, name in (
        (lib.SHMB_BOOL, "uint8_t"),
        (lib.SHMB_FLOAT16, "uint16_t"),
        (lib.SHMB_BFLOAT16, "uint16_t"),
    )
}


# ---- Read ----


@dataclass(frozen=True)
class Spec:
    """A tensor of the log: its shape is fixed."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a value."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """What a log's header says. advice: empty where none was logged; want: the dtype of an only advice, logged or not.
    decision: what the compiler calls the decision, if it is known."""

    features: tuple[Spec, ...]
    advice: tuple[Spec, ...]
    score: Spec | None
    decision: str | None
    want: np.dtype[Any] | None


@dataclass(frozen=True)
class Record:
    """One observation. The arrays are views of its bytes, read-only, perhaps not aligned. score: None where there is none."""

    layout: Layout
    context: str | None
    observation: int
    features: Mapping[str, Array]
    advice: Mapping[str, Array]
    score: Array | None

    @property
    def question(self) -> dict[str, Any]:
        """The features as the compiler sent them: with the strings "context" and "decision", where it did."""
        texts = {"context": self.context, "decision": self.layout.decision}
        return {**self.features, **{name: text for name, text in texts.items() if text is not None}}


class TrainingLog:
    """A log to iterate over, record by record, read as they are asked for; each iteration begins anew.

    torn: what the last iteration found to be cut off at the end, as by a kill of the writer; "" if nothing was.
    Errors: OSError; CorruptError for what is no such log, with the file's name and the place.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.torn = ""
        with _Input(self.path) as file:
            try:
                self.layout = _layout(file, file.line())
            except _TornError:
                file.fail(
                    "expected a line of JSON with the features' specs, found the end of the file"
                )

    def __iter__(self) -> Iterator[Record]:
        self.torn = ""
        with _Input(self.path) as file:
            try:
                yield from _records(file)
            except _TornError as torn:
                self.torn = f"{self.path}: {torn}"


class _TornError(Exception):
    """The file ends where it should not."""


class _Input:
    """A file of lines and bytes, which never reads more than there is."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._path = path
        self._size = os.fstat(self._file.fileno()).st_size
        self._at = 0  # where what was read last begins

    def __enter__(self) -> _Input:
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
            raise _TornError(
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
        self._at = self._file.tell()
        total = sum(spec.nbytes for spec in specs)
        if self._size - self._at <= total:
            raise _TornError(
                f"the last tensors, at byte {self._at}, are cut off: what came before them was read"
            )
        data = self._file.read(total + 1)
        if len(data) != total + 1 or data[-1:] != b"\n":
            self.fail(
                f"expected {total} bytes of tensors and a newline, found {data[-1:]!r} instead of the newline"
            )
        arrays, at = [], 0
        for spec in specs:
            arrays.append(
                np.frombuffer(data, np.uint8, spec.nbytes, at).view(spec.dtype).reshape(spec.shape)
            )
            at += spec.nbytes
        return arrays


def _records(file: _Input) -> Iterator[Record]:
    layout = _layout(file, file.line())
    context: str | None = None
    while not file.ended():
        event = file.line()
        if "features" in event:  # logs in a row
            layout, context = _layout(file, event), None
        elif isinstance(event.get("context"), str):
            context = event["context"]
        elif "observation" in event:
            yield _record(file, layout, context, event["observation"])
        elif event.keys() & {"context", "outcome"}:
            file.fail(f"expected an observation, or a context whose name is text, found {event}")


def _record(file: _Input, layout: Layout, context: str | None, number: Any) -> Record:
    if type(number) is not int:
        file.fail(f"expected the number of an observation, found {number!r}")
    values = file.tensors(layout.features + layout.advice)
    score = None
    if layout.score:
        outcome = file.line()
        if outcome.get("outcome") != number:
            file.fail(
                f'expected {{"outcome":{number}}}, the score of the observation before, found {outcome}'
            )
        (score,) = file.tensors([layout.score])
    asked, advised = values[: len(layout.features)], values[len(layout.features) :]
    features = {spec.name: value for spec, value in zip(layout.features, asked, strict=True)}
    advice = {spec.name: value for spec, value in zip(layout.advice, advised, strict=True)}
    return Record(layout, context, number, features, advice, score)


def _layout(file: _Input, header: dict[str, Any]) -> Layout:
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


def _distinct(file: _Input, specs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        file.fail(f"expected names that differ, found {', '.join(names)}")
    return specs


def _spec(file: _Input, found: Any) -> Spec:
    """A spec of the header, checked."""
    if not isinstance(found, dict):
        file.fail(f"expected a tensor's spec, found {found!r:.100}")
    name, kind, shape, dtype = (found.get(key) for key in ("name", "type", "shape", "dtype"))
    if not isinstance(name, str) or not name:
        file.fail(f"expected a tensor's name, found {name!r:.100}")
    code = _CODES.get(str(kind))
    if dtype is not None:
        code, seen_as = _FOREIGN.get(str(dtype), (None, None))
        code = code if kind == seen_as else None
    if code is None:
        file.fail(
            f'"{name}": expected a type, one of {", ".join(_CODES)}, found {kind!r:.100} (dtype {dtype!r:.100})'
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


# ---- Write ----


class LogWriter:
    """Writes a log: FILE, and beside it FILE.2, FILE.3, … for features or advice of other names, dtypes or shapes, since a file
    has one header. Files that exist are left alone: their numbers are skipped. Whole records are appended, each in one
    write, so a kill loses at most the last. From any thread.

    warn gets one line for each kind of thing that is not recorded. Errors: OSError when FILE cannot be made.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, warn: Callable[[str], object] = warnings.warn
    ) -> None:
        self.path = Path(path)
        self.paths: list[Path] = []  # what was written so far
        self.recorded = self.left_out = 0  # questions
        self._warn = warn
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._files: dict[Any, _Output] = {}
        self._number = 0
        self._closed = False
        self._unused: _Output | None = self._create()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(
        self, features: Mapping[str, Any], advice: Any, *, reward: Any = None, want: Any = None
    ) -> None:
        """Appends a record. features: values as for `Runner.evaluate`. advice: a value, or a mapping of several. reward: a tensor.
        want: the dtype that the compiler asked for, in which the advice is logged where that is exact.

        Errors: InvalidError (advice that is no tensor, more than 256 layouts), OSError; then nothing was written.
        """
        texts = {
            name: features[name]
            for name in ("context", "decision")
            if isinstance(features.get(name), str)
        }
        context, decision = texts.get("context"), texts.get("decision")
        asked = []
        for name, value in features.items():
            field = None if name in texts else as_field(name, value)
            if field and field.kind == lib.SHMB_TENSOR:
                asked.append(field)
            elif field:
                self._warn_once(
                    f'"{name}" is left out: the log holds tensors, and of text only "context" and "decision"'
                )
        advised = _advice(advice, decision, want)
        scored = [] if reward is None else [as_field("reward", reward)]
        # Lists of fields, told apart by what stands between them.
        kept = [
            (field.name, field.code, field.values.shape) for field in (*asked, *advised, *scored)
        ]
        key = (context is None, decision, len(asked), len(advised), *kept)
        tensors = b"".join([field.values.tobytes() for field in (*asked, *advised)])
        outcome = scored[0].values.tobytes() if scored else None
        with self._lock:
            file = self._files.get(key) or self._begin(
                key, _header(asked, advised, scored, decision)
            )
            file.append(context, tensors, outcome)
            if file.path not in self.paths:
                self.paths.append(file.path)
            self.recorded += 1

    def record(
        self, features: Mapping[str, Any], advice: Any, *, reward: Any = None, want: Any = None
    ) -> None:
        """As write, but it never raises, since no compiler should fail for its log: what is not recorded is counted in
        `left_out`, and why is told once."""
        try:
            self.write(features, advice, reward=reward, want=want)
        except Exception as error:
            with self._lock:
                self.left_out += 1
            self._warn_once(f"not recorded: {error}")

    def close(self) -> None:
        """Closes the files. May be called twice."""
        with self._lock:
            for file in filter(None, [*self._files.values(), self._unused]):
                file.close()
            self._files, self._unused, self._closed = {}, None, True

    def _begin(self, key: Any, header: bytes) -> _Output:
        if self._closed:
            raise ClosedError(f"{self.path}: this log is closed: make another")
        if len(self._files) >= LAYOUTS:
            raise InvalidError(
                f"{self.path}: expected at most {LAYOUTS} combinations of names, dtypes and shapes, found another"
            )
        file = self._unused or self._create()
        self._unused, file.header = None, header
        self._files[key] = file
        return file

    def _create(self) -> _Output:
        while True:
            self._number += 1
            path = (
                self.path
                if self._number == 1
                else self.path.with_name(f"{self.path.name}.{self._number}")
            )
            with suppress(FileExistsError):
                return _Output(path)

    def _warn_once(self, text: str) -> None:
        with self._lock:
            new = text not in self._warned and len(self._warned) < LAYOUTS
            self._warned |= {text} if new else set()
        if new:
            self._warn(text)


class _Output:
    """One file, of one layout, which must not exist yet; it goes if nothing comes to be in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self.header = b""  # until it is written
        self._size = 0
        self._context: str | None = None
        self._counts: dict[str | None, int] = {}  # of observations, by context

    def append(self, context: str | None, tensors: bytes, outcome: bytes | None) -> None:
        number = self._counts.get(context, 0)
        lines = [_json({"observation": number}), tensors, b"\n"]
        if context != self._context:
            lines.insert(0, _json({"context": context}))
        if outcome is not None:
            lines += [_json({"outcome": number}), outcome, b"\n"]
        self._write(b"".join([self.header, *lines]))
        self.header, self._context, self._counts[context] = b"", context, number + 1

    def close(self) -> None:
        os.close(self._fd)
        if not self._size:
            with suppress(OSError):
                self.path.unlink()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except BaseException:
            os.ftruncate(self._fd, self._size)  # half a record would hide all that follow
            raise
        self._size += len(data)


def _advice(advice: Any, decision: str | None, want: Any) -> list[Field]:
    named = advice if isinstance(advice, Mapping) else {"advice": advice}
    fields = [as_field(name, value) for name, value in named.items()]
    if not fields:
        raise InvalidError("expected advice, found none")
    for field in fields:
        if field.kind != lib.SHMB_TENSOR:
            raise InvalidError(
                f'"{field.name}": expected advice that is a tensor, as a training log holds, found text or a list'
            )
    if len(fields) == 1:
        if want is not None:
            fields = [exactly(fields[0], code_of(np.dtype(want), "want")) or fields[0]]
        if decision and fields[0].name == "advice":
            fields[0].name = decision
    return fields


def _header(
    asked: list[Field], advised: list[Field], scored: list[Field], decision: str | None
) -> bytes:
    header: dict[str, Any] = {"features": [_spec_of(field) for field in (*asked, *advised)]}
    if scored:
        header["score"] = _spec_of(scored[0])
    header["advice"] = _spec_of(advised[0])
    if decision is not None:
        header["decision"] = decision
    return _json(header)


def _spec_of(field: Field) -> dict[str, Any]:
    name = dtype_name(field.code)
    type_ = _TYPES[field.code] if field.code in _TYPES else _FOREIGN[name][1]
    more = {} if field.code in _TYPES else {"dtype": name}
    return {"name": field.name, "type": type_, "port": 0, "shape": list(field.values.shape), **more}


def _json(value: dict[str, Any]) -> bytes:
    line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_BYTES:
        raise InvalidError(
            f"expected names that fit a line of {LINE_BYTES} bytes, found one of {len(line)}"
        )
    return line


def recorded(model: Model, log: LogWriter) -> Model:
    """The model, for a host's `serve`, as one that records what it answers: of one request, or of each in a `Batch`. What it
    raises is not recorded."""

    def answer(question: Mapping[str, Any]) -> Any:
        advice = model(question)
        if isinstance(question, Batch):
            named = advice if isinstance(advice, Mapping) else {"advice": advice}
            with suppress(InvalidError):  # not a row for each request: whoever replies is told
                columns = {
                    name: rows_of(name, values, question.size) for name, values in named.items()
                }
                for i, request in enumerate(question.requests):
                    log.record(
                        request,
                        {name: rows[i] for name, rows in columns.items()},
                        want=request.wanted,
                    )
        else:
            log.record(
                question, advice, want=question.wanted if isinstance(question, Request) else None
            )
        return advice

    return answer

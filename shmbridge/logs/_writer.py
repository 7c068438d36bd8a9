"""The writing side of training logs: shmbridge.logs says which bytes."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._values.dtypes import DTYPES, code_of, dtype_name
from shmbridge._values.tensor import Field, as_field, exactly
from shmbridge.errors import ClosedError, Closing, InvalidError, undone_by

LINE_BYTES = 1 << 20  # of the longest line of JSON that is read
LAYOUTS = 256  # files of one log

TYPES = {
    code: str(ffi.string(lib.shmb_llvm_type(code)).decode())
    for code in DTYPES
    if lib.shmb_llvm_type(code) != ffi.NULL
}
NOT_IN_LLVM = {  # dtypes that LLVM lacks, and as what it sees them: unsigned integers of their size
    name: (code, f"uint{8 * lib.shmb_dtype_size(code)}_t")
    for code, name in DTYPES.items()
    if code not in TYPES
}


class Context(NamedTuple):
    """What a line {"context": …} says."""

    name: str | None = None
    label: str = ""


class LogWriter(Closing):
    """Writes a log, from any thread.

    A file has one header. So features or advice with other names, dtypes or shapes go to FILE.2,
    FILE.3, …. Existing files are not changed; their numbers are skipped. Each record is appended in
    one write, so a kill loses at most the last.

    Args:
        path: FILE.
        warn: Receives one line for each kind of data that is not recorded.

    Attributes:
        paths: The files written so far.
        recorded: How many records were written.
        left_out: How many records could not be written by `record`.

    Raises:
        OSError: FILE cannot be created.
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

    def write(
        self,
        features: Mapping[str, Any],
        advice: Any,
        *,
        reward: Any = None,
        want: Any = None,
        label: str = "",
    ) -> None:
        """Appends a record.

        Args:
            features: Values as for `Runner.evaluate`.
            advice: A value, or a mapping of several.
            reward: A tensor, or None.
            want: The dtype that the compiler wants. The advice is logged in it, if that is exact.
            label: A description of the runner, for example a source file (`Request.label`).

        Raises:
            InvalidError: The advice is no tensor, or there are more than 256 layouts. Nothing was
                written.
            OSError: Nothing was written.
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
                    f'"{name}" is left out: the log contains tensors, and as text only '
                    '"context" and "decision"'
                )
        advised = _advice(advice, decision, want)
        scored = [] if reward is None else [as_field("reward", reward)]
        # Lists of fields, told apart by what stands between them.
        kept = [
            (field.name, field.code, field.values.shape) for field in (*asked, *advised, *scored)
        ]
        if context is None and label:
            context = label
        key = (context is None, decision, len(asked), len(advised), *kept)
        tensors = b"".join([field.values.tobytes() for field in (*asked, *advised)])
        outcome = scored[0].values.tobytes() if scored else None
        with self._lock:
            file = self._files.get(key) or self._begin(
                key, _header(asked, advised, scored, decision)
            )
            file.append(Context(context, label), tensors, outcome)
            if file.path not in self.paths:
                self.paths.append(file.path)
            self.recorded += 1

    def record(self, features: Mapping[str, Any], advice: Any, **rest: Any) -> None:
        """Like `write`, but never raises, since a log should not make a compiler fail. Data that is
        not recorded is counted in `left_out`, and reported once to `warn`.

        Args:
            features, advice, rest: As in `write`.
        """
        try:
            self.write(features, advice, **rest)
        except Exception as error:
            self._warn_once(f"not recorded: {error}")
            with self._lock:
                self.left_out += 1

    def close(self) -> None:
        """Closes the files. You may call it twice."""
        with self._lock:
            for file in filter(None, [*self._files.values(), self._unused]):
                file.close()
            self._files, self._unused, self._closed = {}, None, True

    def _begin(self, key: Any, header: bytes) -> _Output:
        if self._closed:
            raise ClosedError(f"{self.path}: this log is closed: make another")
        if len(self._files) >= LAYOUTS:
            raise InvalidError(
                f"{self.path}: expected at most {LAYOUTS} combinations of names, dtypes and "
                "shapes, found another"
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
        self._context = Context()
        self._counts: dict[Context, int] = {}  # of observations

    def append(self, context: Context, tensors: bytes, outcome: bytes | None) -> None:
        number = self._counts.get(context, 0)
        lines = [_json({"observation": number}), tensors, b"\n"]
        if context != self._context:
            label = {"label": context.label} if context.label else {}
            lines.insert(0, _json({"context": context.name, **label}))
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
        # half a record would hide all that follow
        with undone_by(lambda: os.ftruncate(self._fd, self._size)):
            while left:
                left = left[os.write(self._fd, left) :]
        self._size += len(data)


def _advice(advice: Any, decision: str | None, want: Any) -> list[Field]:
    named = advice if isinstance(advice, Mapping) else {"advice": advice}
    fields = [as_field(name, value) for name, value in named.items()]
    if not fields:
        raise InvalidError("expected advice, found none")
    for field in fields:
        if field.kind != lib.SHMB_TENSOR:
            raise InvalidError(
                f'"{field.name}": expected advice that is a tensor, as a training log holds, '
                "found text or a list"
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
    type_ = TYPES[field.code] if field.code in TYPES else NOT_IN_LLVM[name][1]
    more = {} if field.code in TYPES else {"dtype": name}
    return {"name": field.name, "type": type_, "port": 0, "shape": list(field.values.shape), **more}


def _json(value: dict[str, Any]) -> bytes:
    line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_BYTES:
        raise InvalidError(
            f"expected names that fit a line of {LINE_BYTES} bytes, found one of {len(line)}"
        )
    return line

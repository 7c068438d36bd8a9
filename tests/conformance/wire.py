"""Values and the words by which scripted runners are told of them: numpy arrays, str, lists of str,
Ragged."""

from pathlib import Path

import ml_dtypes
import numpy as np

from shmbridge import Ragged
from shmbridge._native import ffi

TENSOR, STRING, STRINGS, RAGGED = sorted(ffi.typeof("shmb_kind").elements)
NAMES = {
    code: name.removeprefix("SHMB_").lower()
    for code, name in ffi.typeof("shmb_dtype").elements.items()
    if code
}
DTYPES = {code: np.dtype(getattr(ml_dtypes, name, name)) for code, name in NAMES.items()}
CODES = {dtype: code for code, dtype in DTYPES.items()}
SPILL = 1 << 16  # bytes; more than that travel in a file


class Number:
    """A plain Python number: its dtype is not known."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"the Python number {self.value!r}"


def to_bytes(word):
    if word.startswith("@"):
        return Path(word[1:]).read_bytes()
    return b"" if word == "-" else bytes.fromhex(word)


def to_word(data, spill):
    if len(data) <= SPILL:
        return bytes(data).hex() or "-"
    Path(spill).write_bytes(data)
    return f"@{spill}"


def to_text(data):
    return data.decode(errors="surrogateescape")


def from_text(text):
    return text.encode(errors="surrogateescape")


def flat(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def sizes(shape):
    return " ".join(map(str, (len(shape), *shape)))


def filled(name, value, spill):
    """The line that fills a feature."""
    if isinstance(value, str):
        return f"string {name} {to_word(from_text(value), spill)}"
    if isinstance(value, list):
        words = [to_word(from_text(text), spill) for text in value]
        return " ".join(["strings", name, str(len(value)), *words])
    values = np.asarray(value.values if isinstance(value, Ragged) else value)
    rest = f"{sizes(values.shape)} {to_word(flat(values), spill)}"
    if isinstance(value, Ragged):
        lengths = " ".join(map(str, [len(value), *np.diff(value.offsets)]))
        return f"ragged {name} {CODES[values.dtype]} {lengths} {rest}"
    return f"feature {name} {CODES[values.dtype]} {rest}"


def printed(name, value, spill):
    """How advice is printed."""
    if isinstance(value, str):
        return f"{name} 6 {STRING} 1 {len(from_text(value))} {to_word(from_text(value), spill)}"
    if isinstance(value, list):
        datas = [from_text(text) for text in value]
        ends = " ".join(map(str, np.cumsum([0, *map(len, datas)])))
        return (
            f"{name} 6 {STRINGS} 1 {len(value)} {sum(map(len, datas))} {ends} "
            f"{to_word(b''.join(datas), spill)}"
        )
    if isinstance(value, Ragged):
        values, ends = value.values, " ".join(map(str, value.offsets))
        shape = " ".join(map(str, (values.ndim, len(value), *values.shape)))
        return (
            f"{name} {CODES[values.dtype]} {RAGGED} {shape} {ends} {to_word(flat(values), spill)}"
        )
    return (
        f"{name} {CODES[value.dtype]} {TENSOR} {sizes(value.shape)} {to_word(flat(value), spill)}"
    )


def parsed(line):
    """Advice by name, of the line that printed it."""
    return dict(_field(*part.split(" ")) for part in line.split(" | ")[1:])


def _field(name, dtype, *rest):
    if dtype == "number":
        return name, Number(number(rest[0]))
    kind, rank, words = int(rest[0]), int(rest[1]), rest[2:]
    is_list = kind in (STRINGS, RAGGED)
    dims = list(map(int, words[: rank + is_list]))
    data = to_bytes(words[-1])
    if kind == STRING:
        return name, to_text(data)
    offsets = np.array(words[rank + is_list : -1], np.int64)
    if kind == STRINGS:
        return name, [to_text(data[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    values = np.frombuffer(data, DTYPES[int(dtype)]).reshape(dims[is_list:])
    return name, Ragged(values, offsets) if is_list else values


def number(text):
    """A Python number of its repr."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)


def same(found, expected):
    """Are they the same to the bit, dtypes, shapes and kinds too? A plain number must be of the
    same kind and value."""
    if isinstance(found, Number):
        if not isinstance(expected, np.ndarray) or expected.ndim:
            return False
        wide = np.asarray(found.value)
        return wide.dtype.kind == np.asarray(expected.item()).dtype.kind and (
            repr(found.value) == repr(expected.item())
        )
    if isinstance(found, Ragged) and isinstance(expected, Ragged):
        return same(found.values, expected.values) and list(found.offsets) == list(expected.offsets)
    if isinstance(found, np.ndarray) and isinstance(expected, np.ndarray):
        return (
            found.dtype == expected.dtype
            and found.shape == expected.shape
            and np.array_equal(flat(found), flat(expected))
        )
    return (
        any(isinstance(found, kind) and isinstance(expected, kind) for kind in (str, list))
        and found == expected
    )

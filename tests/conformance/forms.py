"""The forms in which a value arrives where a combination cannot carry it as it is. Each gets the
value that should arrive and the one that was sent (the same, unless it should be converted on the
way)."""

import numpy as np
import wire

from shmbridge import Ragged


def shape_1(value, sent):
    """A single number as a vector of one."""
    return np.reshape(value, value.shape or 1)


def uint8(value, sent):
    """Bools as 0 and 1, text as its bytes."""
    values = (
        np.frombuffer(wire.from_text(value), np.uint8)
        if isinstance(value, str)
        else value.astype(np.uint8)
    )
    return shape_1(values, sent)


def cut_at_0(value, sent):
    """Lists in lists: below an empty one there is nothing to say how long it would be."""
    return value.reshape(value.shape[: value.shape.index(0) + 1])


def decimals(value, sent):
    """The fewest digits that say which number was sent, read as what is wanted."""
    return _digits(sent).astype(value.dtype).reshape(value.shape)


def JSON(value, sent):
    """Lists in lists: int64, or uint64 where one needs it, float64 and bool; rows of one length are
    a tensor."""
    if isinstance(value, str) or (isinstance(value, list) and value):
        return value
    if isinstance(value, list) or not np.size(value.values if isinstance(value, Ragged) else value):
        return _without_numbers(value)
    if not isinstance(value, Ragged):
        return _digits(value)
    rows, offsets = _digits(value.values), value.offsets
    even = len(set(np.diff(offsets))) == 1
    return rows.reshape(len(value), -1, *rows.shape[1:]) if even else Ragged(rows, offsets)


def _without_numbers(value):
    shape = (
        (len(value), *([0] if len(value) else []))
        if isinstance(value, (list, Ragged))
        else value.shape
    )
    return cut_at_0(np.empty(shape), None)


def _digits(values):
    if values.dtype.kind == "b":
        return values
    if values.dtype.kind in "iu":
        return values.astype(np.uint64 if values.max() > 2**63 - 1 else np.int64)
    narrow = values.astype(np.float64 if values.dtype == np.float64 else np.float32)
    return np.array([float(str(number)) for number in narrow.flat]).reshape(values.shape)


FORMS = {
    form.__name__.replace("_", " "): form for form in (shape_1, uint8, cut_at_0, decimals, JSON)
}


def show(value):
    """A value with its type, shortened."""
    if isinstance(value, np.ndarray):
        return (
            f"{value.dtype}{list(value.shape)} "
            f"{np.array2string(value.reshape(-1), threshold=8, edgeitems=3)}"
        )
    if isinstance(value, Ragged):
        return (
            f"ragged {show(value.values)} at "
            f"{np.array2string(np.asarray(value.offsets), threshold=8, edgeitems=3)}"
        )
    if isinstance(value, wire.Number):
        return repr(value)
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}… ({len(value)})"

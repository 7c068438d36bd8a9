"""Values and their tensors: what numpy, Python and DLPack objects become on the wire, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shmbridge._native import ffi, lib
from shmbridge._values.dtypes import code_of, dtype_if_known, dtype_name, dtype_of
from shmbridge.errors import InexactError, InvalidError, MismatchError

Array = npt.NDArray[Any]

SURROGATE = re.compile(r"[\ud800-\udfff]")


class Ragged(Sequence[Array]):
    """A list of rows of different lengths, like Arrow's lists.

    Args:
        values: All rows, one after another: shape [total, ...].
        offsets: The start of each row, and the end of the last one: int64[rows + 1].
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Array, offsets: npt.NDArray[np.int64]) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    def __repr__(self) -> str:
        return f"Ragged({list(self)})"


class StringList(list[str]):
    """A list of strings that may be empty; a plain [] is a tensor of float64."""


@dataclass(slots=True)
class Field:
    """A value ready for the wire: values as a C-contiguous array of any rank; offsets for lists."""

    name: str
    code: int
    kind: int
    values: Array
    offsets: npt.NDArray[np.int64] | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims on the wire: a list's row count first."""
        shape = self.values.shape
        return shape if self.offsets is None else (len(self.offsets) - 1, *shape)


def _element_types(value: Sequence[Any]) -> set[str]:
    """What kinds of leaf a nested list holds: "bool", "int", "float", "text", "array" or a type's
    name."""
    found: set[str] = set()
    for item in value:
        if isinstance(item, (list, tuple)):
            found |= _element_types(item)
        elif isinstance(item, (bool, np.bool_)):
            found.add("bool")
        elif isinstance(item, (int, np.integer)):
            found.add("int")
        elif isinstance(item, (float, np.floating)):
            found.add("float")
        elif isinstance(item, str):
            found.add("text")
        elif isinstance(item, np.ndarray):
            found.add(f"array of {item.dtype}")
        else:
            found.add(type(item).__name__)
    return found


def _from_array(name: str, array: Array) -> Field:
    if array.ndim > lib.SHMB_MAX_RANK:
        raise InvalidError(
            f'"{name}": expected a rank of 0 to {lib.SHMB_MAX_RANK}, found {array.ndim}'
        )
    code = code_of(array.dtype, name)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = array if array.flags.c_contiguous else array.copy(order="C")
    return Field(name, code, lib.SHMB_TENSOR, array)


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidError(
            f'"{ascii(name)[1:-1]}": expected text that UTF-8 can express, found a lone surrogate '
            f"in {text!a}"
        ) from error


def _from_list(name: str, value: Sequence[Any]) -> Field:
    kinds = _element_types(value)
    if (kinds == {"text"} or isinstance(value, StringList)) and all(
        isinstance(item, str) for item in value
    ):
        texts = [_utf8(name, item) for item in value]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        data = np.frombuffer(b"".join(texts), np.uint8)
        return Field(name, lib.SHMB_UINT8, lib.SHMB_STRINGS, data, offsets)
    if len(kinds) > 1:
        raise InvalidError(
            f'"{name}": expected a list of one type, found {" and ".join(sorted(kinds))}: convert '
            "it, e.g. with numpy.array"
        )
    try:
        array = np.asarray(value, None if kinds else np.float64)
    except ValueError:  # rows of unequal length
        return _from_ragged(name, _rows(name, value, kinds))
    if kinds == {"int"} and array.dtype.kind not in "iu":
        array = _wide_integers(name, np.array(value, object))
    return _from_array(name, array)


def _wide_integers(name: str, numbers: Array) -> Array:
    """Integers, as objects, of which numpy itself makes floats or objects: the same as uint64 or
    int64."""
    low, high = min(numbers.flat), max(numbers.flat)
    dtype = np.int64 if low < 0 else np.uint64
    if low < np.iinfo(dtype).min or high > np.iinfo(dtype).max:
        raise InvalidError(
            f'"{name}": expected integers that one integer dtype holds, found some from {low} to '
            f"{high}"
        )
    return numbers.astype(dtype)


def _rows(name: str, value: Sequence[Any], kinds: set[str]) -> Ragged:
    try:
        arrays = [np.asarray(row) for row in value]
        widest = max((row for row in arrays if row.size), key=lambda row: row.ndim)
        empty = np.empty((0, *widest.shape[1:]), widest.dtype)
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        rows = Ragged(np.concatenate([row if row.size else empty for row in arrays]), offsets)
    except (TypeError, ValueError) as error:
        raise InvalidError(
            f'"{name}": expected a tensor, or rows that differ only in length; found a list that '
            "is neither"
        ) from error
    if kinds == {"int"} and rows.values.dtype.kind not in "iu":
        numbers = np.concatenate([np.array(row, object).ravel() for row in value])
        rows.values = _wide_integers(name, numbers.reshape(rows.values.shape))
    return rows


def _from_ragged(name: str, rows: Ragged) -> Field:
    field = _from_array(name, np.atleast_1d(rows.values))
    offsets = np.asarray(rows.offsets)
    fits = offsets.dtype.kind in "iu" and offsets.ndim == 1 and offsets.size > 0
    if (
        not fits
        or offsets[0] != 0
        or offsets[-1] != len(field.values)
        or bool(np.any(offsets[1:] < offsets[:-1]))
    ):
        raise InvalidError(
            f'"{name}": expected integer offsets that begin with 0, never decrease and end with '
            f"{len(field.values)}, the number "
            f"of values; found {offsets.dtype} {offsets.tolist()}"
        )
    field.kind, field.offsets = lib.SHMB_RAGGED, np.ascontiguousarray(offsets, np.int64)
    return field


def as_field(name: str, value: Any) -> Field:
    """What a value is on the wire. Takes numpy arrays and scalars, Python numbers, str, lists
    (nested evenly: a tensor; unevenly: ragged; of str: a list of strings), Ragged, and anything
    with DLPack or the array protocol. Lists that mix types, objects and complex numbers are
    InvalidError: nothing is converted silently."""
    if not isinstance(name, str) or not name or "\0" in name or SURROGATE.search(name):
        raise InvalidError(
            "expected a name: text of one character or more, none of them zero or a lone "
            f"surrogate; found {name!a}"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidError(
            f'"{name}": no tensor has a mask; expected an array, found a masked one: fill it, '
            "e.g. with .filled(0)"
        )
    if isinstance(value, np.ndarray):
        return _from_array(name, value)
    if isinstance(value, str):
        data = np.frombuffer(_utf8(name, value), np.uint8)
        return Field(name, lib.SHMB_UINT8, lib.SHMB_STRING, data)
    if isinstance(value, Ragged):
        return _from_ragged(name, value)
    if isinstance(value, (list, tuple)):
        return _from_list(name, value)
    if isinstance(value, (bool, int, float, np.generic)):
        array = np.asarray(value)
        if array.dtype == object:
            raise InvalidError(f'"{name}": expected an integer of at most 64 bits, found {value}')
        return _from_array(name, array)
    if hasattr(value, "__dlpack__"):
        return _from_array(name, np.from_dlpack(value))
    if hasattr(value, "__array__"):
        return _from_array(name, np.asarray(value))
    raise InvalidError(
        f'"{name}": expected a number, array, str or list, found {type(value).__name__}'
    )


def exactly(field: Field, want: int) -> Field | None:
    """The field with its values as dtype code `want`, or None when one of them has no exact
    counterpart."""
    if field.code == want:
        return field
    if field.kind in (lib.SHMB_STRING, lib.SHMB_STRINGS):
        return None
    source = np.ascontiguousarray(field.values)
    # Where this Python lacks it: its bits.
    dtype = dtype_if_known(want) or np.dtype(f"u{lib.shmb_dtype_size(want)}")
    values = np.empty(field.values.shape, dtype)  # ascontiguousarray gives a scalar a dim
    data = ffi.cast("void *", source.ctypes.data)
    tensor = ffi.new("shmb_tensor *", {"dtype": field.code, "size": source.size, "data": data})
    inexact = lib.shmb_convert_tensor(tensor, want, ffi.cast("void *", values.ctypes.data)) >= 0
    return None if inexact else Field(field.name, want, field.kind, values, field.offsets)


def as_asked(fields: list[Field], want: int) -> list[Field]:
    """The advice, a single field in the dtype code `want` that the runner asked for; 0: any.
    Errors: MismatchError for text, InexactError."""
    if not want or len(fields) != 1:
        return fields
    (field,) = fields
    exact = exactly(field, want)
    if exact:
        return [exact]
    if field.kind in (lib.SHMB_STRING, lib.SHMB_STRINGS):
        found = "a text" if field.kind == lib.SHMB_STRING else "a list of texts"
        raise MismatchError(
            f'the advice "{field.name}" is {found}, and the runner asked for a number of dtype '
            f"{dtype_name(want)}: ask without a dtype, or advise a number"
        )
    some = f" {field.values.item()}" if field.values.size == 1 else ""
    raise InexactError(
        f'the advice "{field.name}"{some} of dtype {field.values.dtype} is not exactly '
        f"representable as {dtype_name(want)}, which the runner asked for: return a decision, such "
        "as x > 0, or its exact value"
    )


def write_field(add: Any, field: Field) -> None:
    """Sends a field through `add(name, code, kind, rank, dims, offsets) -> memory`; memory NULL:
    add has said why."""
    dims = ffi.new("int64_t[]", field.dims or (0,))
    offsets = ffi.new("int64_t **")
    memory = add(field.name.encode(), field.code, field.kind, field.values.ndim, dims, offsets)
    if memory == ffi.NULL:
        return
    if field.offsets is not None and offsets[0] != ffi.NULL:
        ffi.memmove(offsets[0], field.offsets, field.offsets.nbytes)
    if field.values.nbytes:
        ffi.memmove(memory, field.values.reshape(-1).view(np.uint8), field.values.nbytes)


def describe(values: Mapping[str, Any]) -> str:
    """Names, dtypes and shapes, for messages."""
    return ", ".join(
        f"{name}: {value.dtype}[{', '.join(map(str, value.shape))}]"
        if isinstance(value, (np.ndarray, np.generic))
        else f"{name}: {type(value).__name__}"
        for name, value in values.items()
    )


def offsets_of(tensor: Any) -> npt.NDArray[np.int64]:
    count = tensor.dims[0] + 1
    return np.array(np.frombuffer(ffi.buffer(tensor.offsets, 8 * count), np.int64))


def texts_of(values: Array, offsets: npt.NDArray[np.int64]) -> StringList:
    data = values.tobytes()
    return StringList(
        _decode(data[a:b]) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    )


def text_of(values: Array) -> str:
    return _decode(values.tobytes())


def _decode(data: bytes) -> str:
    """UTF-8; other bytes, as of file names, become surrogate escapes and would go back as they
    came."""
    return data.decode(errors="surrogateescape")


def shape_of(tensor: Any) -> tuple[int, ...]:
    first = 1 if tensor.kind in (lib.SHMB_STRINGS, lib.SHMB_RAGGED) else 0
    return tuple(tensor.dims[first + i] for i in range(tensor.rank))


def copy_value(tensor: Any) -> Any:
    """A shmb_tensor's value, copied: a numpy scalar for rank 0, else an array, str, list of str or
    Ragged."""
    dtype = dtype_of(tensor.dtype)
    data = np.frombuffer(ffi.buffer(tensor.data, tensor.size * dtype.itemsize), np.uint8)
    values = data.view(dtype).reshape(shape_of(tensor))
    if tensor.kind == lib.SHMB_TENSOR:
        return values.copy() if tensor.rank else values[()]
    if tensor.kind == lib.SHMB_STRING:
        return text_of(values)
    if tensor.kind == lib.SHMB_STRINGS:
        return texts_of(values, offsets_of(tensor))
    return Ragged(values.copy(), offsets_of(tensor))

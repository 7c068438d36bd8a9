"""A user's own protobuf message class, whose fields are features or advice.

Scalars are rank 0, repeated ones rank 1, enums int32, bytes uint8 of rank 1; the fields of a nested
message are called "outer.inner". A float field takes the nearest float32; all other numbers must
fit exactly. Repeated messages, maps, repeated bytes, groups and messages that contain themselves
are refused.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shmbridge._native import lib
from shmbridge._values import dtypes, tensor
from shmbridge.errors import InexactError, InvalidError, MismatchError

DTYPES: dict[int, np.dtype[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: np.dtype(np.int32),
    FieldDescriptor.CPPTYPE_INT64: np.dtype(np.int64),
    FieldDescriptor.CPPTYPE_UINT32: np.dtype(np.uint32),
    FieldDescriptor.CPPTYPE_UINT64: np.dtype(np.uint64),
    FieldDescriptor.CPPTYPE_DOUBLE: np.dtype(np.float64),
    FieldDescriptor.CPPTYPE_FLOAT: np.dtype(np.float32),
    FieldDescriptor.CPPTYPE_BOOL: np.dtype(np.bool_),
    FieldDescriptor.CPPTYPE_ENUM: np.dtype(np.int32),
}
KINDS = {
    FieldDescriptor.TYPE_STRING: "str",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
}
CATEGORIES = {"i": "iu", "u": "iu", "f": "iuf", "b": "b"}  # what may become it where that is exact


class Leaf(NamedTuple):
    """A field that holds a value: the nested messages' fields that lead to it, and itself."""

    path: tuple[Any, ...]
    field: Any
    repeated: bool

    def __str__(self) -> str:
        kind = KINDS.get(self.field.type) or str(DTYPES.get(self.field.cpp_type))
        return f"repeated {kind}" if self.repeated else kind


def _repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # protobuf 6 and later, which warns about label
    return bool(field.label == FieldDescriptor.LABEL_REPEATED if found is None else found)


def _leaves(message: Any, path: tuple[Any, ...], above: tuple[Any, ...]) -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    for field in message.fields:
        repeated, prefix = _repeated(field), ".".join([*(step.name for step in path), field.name])
        if field.message_type is None and not (
            repeated and field.type == FieldDescriptor.TYPE_BYTES
        ):
            found[prefix] = Leaf(path, field, repeated)
        elif repeated or field.type == FieldDescriptor.TYPE_GROUP or field.message_type in above:
            what = (
                "a map, a group, or repeated messages or bytes"
                if repeated or field.message_type not in above
                else "a message within itself"
            )
            raise InvalidError(
                f"{message.full_name}.{field.name} is {what}, which has no tensor form; expected "
                "scalars, strings, bytes, repeated ones, and messages of these"
            )
        else:
            found |= _leaves(field.message_type, (*path, field), (*above, field.message_type))
    return found


class UserMessage:
    """A message class as a kind of message. Errors: InvalidError."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        if not (isinstance(kind, type) and issubclass(kind, Message)):
            raise InvalidError(f"expected a protobuf message class, found {kind!r}")
        self._leaves = _leaves(self.kind.DESCRIPTOR, (), (self.kind.DESCRIPTOR,))

    def only_field(self, name: str) -> str:
        """The only field's name where there is just one, else `name`."""
        return next(iter(self._leaves)) if len(self._leaves) == 1 else name

    def of(self, values: Mapping[str, Any]) -> Any:
        """A message with these values. Errors: MismatchError, InexactError, InvalidError; they name
        the field."""
        message = self.kind()
        for name, value in values.items():
            leaf = self._leaves.get(name)
            if leaf is None:
                raise MismatchError(
                    f'"{name}": {self.kind.DESCRIPTOR.full_name} has no such field; expected '
                    f"{', '.join(self._leaves) or 'none'}"
                )
            holder = message
            for step in leaf.path:
                _check_alone(name, holder, step)
                holder = getattr(holder, step.name)
            _check_alone(name, holder, leaf.field)
            _put(name, holder, leaf, value)
        return message

    def values(self, message: Any) -> dict[str, Any]:
        """The values of a message by name; fields that tell whether they are set only where they
        are."""
        found = {}
        for name, leaf in self._leaves.items():
            value = message
            for step in (*leaf.path, leaf.field):
                if step.has_presence and not value.HasField(step.name):
                    break
                value = getattr(value, step.name)
            else:
                found[name] = _value(leaf, value)
        return found


def _check_alone(name: str, holder: Any, field: Any) -> None:
    """Of a oneof only one field may be set: the next would silently replace it."""
    others = field.containing_oneof
    chosen = others and holder.WhichOneof(others.name)
    if chosen and chosen != field.name:
        raise MismatchError(
            f'"{name}": the message has "{chosen}" already, of which it may have only one (oneof '
            f"{others.name})"
        )


def _put(name: str, holder: Any, leaf: Leaf, value: Any) -> None:
    if leaf.repeated and isinstance(value, (list, tuple)) and not value:
        return
    made, field = _python_value(name, leaf, tensor.as_field(name, value)), leaf.field.name
    try:
        if leaf.repeated:
            getattr(holder, field).extend(made)
        else:
            setattr(holder, field, made)
    except (TypeError, ValueError) as error:  # a closed enum
        raise InvalidError(f'"{name}": expected {leaf}: {error}') from error


def _python_value(name: str, leaf: Leaf, field: tensor.Field) -> Any:
    """What protobuf takes: the value of one field, exactly."""
    values, dtype = field.values, DTYPES.get(leaf.field.cpp_type)
    fits = field.kind == lib.SHMB_TENSOR and values.ndim == leaf.repeated
    if leaf.field.type == FieldDescriptor.TYPE_STRING:
        if field.kind == (lib.SHMB_STRINGS if leaf.repeated else lib.SHMB_STRING):
            return _texts(name, field)
    elif dtype is None:
        if field.kind == lib.SHMB_TENSOR and field.code == lib.SHMB_UINT8 and values.ndim == 1:
            return values.tobytes()
    elif fits and (
        values.dtype.kind in CATEGORIES[dtype.kind]
        or (dtype.kind == "f" and values.dtype.name == "bfloat16")
    ):
        if dtype == np.float32:
            field = _nearest(field)
        exact = tensor.exactly(field, dtypes.code_of(dtype, name))
        if exact is None:
            some = str(values) if values.size < 10 else "a value"
            raise InexactError(
                f'"{name}": {some} of dtype {values.dtype} is not exactly representable '
                f"as {dtype}, which the message has: convert it, e.g. with numpy.{dtype}"
            )
        return exact.values.tolist()
    found = {
        lib.SHMB_STRING: "a str",
        lib.SHMB_STRINGS: "a list of str",
        lib.SHMB_RAGGED: "a ragged list",
    }.get(field.kind, f"{values.dtype}{list(values.shape)}")
    raise MismatchError(f'"{name}": expected {leaf}, found {found}')


def _nearest(field: tensor.Field) -> tensor.Field:
    """float64 as the nearest float32, as protobuf does it; too large a number stays as it is."""
    if field.values.dtype != np.float64:
        return field
    with np.errstate(over="ignore"):
        values = np.asarray(field.values, np.float32)
    fits = np.array_equal(np.isinf(values), np.isinf(field.values))
    return tensor.Field(field.name, lib.SHMB_FLOAT32, field.kind, values) if fits else field


def _texts(name: str, field: tensor.Field) -> Any:
    try:
        if field.offsets is None:
            return field.values.tobytes().decode()
        texts = tensor.texts_of(field.values, field.offsets)
        return [text.encode().decode() for text in texts]
    except UnicodeError as error:
        raise InvalidError(f'"{name}": protobuf accepts only UTF-8 text: {error}') from error


def _value(leaf: Leaf, value: Any) -> Any:
    dtype = DTYPES.get(leaf.field.cpp_type)
    if leaf.field.type == FieldDescriptor.TYPE_STRING:
        return tensor.StringList(value) if leaf.repeated else value
    if dtype is None:
        return np.frombuffer(value, np.uint8)
    return np.array(value, dtype)[()]

"""YAML as a SerDes: messages that people can read and write.

callee: main                                                text
blocks: [entry, exit]                                       a list of strings
costs: {dtype: float32, shape: [2, 2], values: [1.0, 2.5, .inf, .nan]}
users: {dtype: int64, shape: [3], values: [4, 5, 6], offsets: [0, 2, 3]}     a ragged list: [4, 5] and [6]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from shmbridge import CorruptError, Ragged, StringList, UnsupportedError
from shmbridge.serdes import SerDes

# not everything that numpy.dtype accepts: untrusted text could be "S1000000000"
DTYPES = {
    name: np.dtype(name)
    for name in [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ]
}


class Loader(yaml.BaseLoader):
    """Makes only str, list and dict. Rejects aliases, with which a small text can become a huge value."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise CorruptError(f"expected YAML without aliases, found *{self.peek_event().anchor}")
        return super().compose_node(parent, index)


class Yaml(SerDes):
    """indent: spaces; an option of the URL, as a string."""

    def __init__(self, indent: str = "2") -> None:
        self._indent = int(indent)

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        document = {name: _document(name, value) for name, value in fields.items()}
        return yaml.safe_dump(
            document, default_flow_style=None, indent=self._indent, sort_keys=False
        ).encode()

    def decode(self, data: bytes) -> Mapping[str, Any]:
        try:
            document = yaml.load(data, Loader)
            if not isinstance(document, dict):
                raise CorruptError(
                    f"expected a YAML mapping of names to values, found {type(document).__name__}"
                )
            return {name: _value(name, value) for name, value in document.items()}
        except (
            yaml.YAMLError,
            LookupError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise CorruptError(f"not a message in YAML: {error}") from error


def _document(name: str, value: Any) -> Any:
    if isinstance(value, (str, list)):
        return value if isinstance(value, str) else list(value)
    array = np.asarray(value.values if isinstance(value, Ragged) else value)
    if array.dtype.name not in DTYPES:
        raise UnsupportedError(f'"{name}": YAML has {", ".join(DTYPES)}, found {array.dtype}')
    document = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "values": array.ravel().tolist(),
    }
    return document | {"offsets": value.offsets.tolist()} if isinstance(value, Ragged) else document


def _value(name: str, document: Any) -> Any:
    if isinstance(document, (str, list)):
        return document if isinstance(document, str) else StringList(document)
    dtype = DTYPES.get(document["dtype"])
    if dtype is None:
        raise CorruptError(
            f'"{name}": expected a dtype of {", ".join(DTYPES)}, found {document["dtype"]!r}'
        )
    shape, texts = tuple(map(int, document["shape"])), document["values"]
    if not isinstance(texts, list) or math.prod(shape) != len(texts):  # before memory is allocated
        raise CorruptError(
            f'"{name}": expected a list of {math.prod(shape)} values of shape {shape}, found {texts!r:.100}'
        )
    values = [_number(dtype.kind, text) for text in texts]
    if dtype.kind in "iu" and any(
        not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values
    ):
        raise CorruptError(
            f'"{name}": expected numbers that {dtype} holds, found {min(values)} to {max(values)}'
        )
    array = np.array(values, dtype).reshape(shape)
    return (
        Ragged(array, np.array(list(map(int, document["offsets"]))))
        if "offsets" in document
        else array[()]
    )


def _number(kind: str, text: str) -> Any:
    if kind == "b":
        return {"true": True, "false": False}[text]
    return int(text) if kind in "iu" else float(text.replace(".nan", "nan").replace(".inf", "inf"))

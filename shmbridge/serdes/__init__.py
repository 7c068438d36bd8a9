"""SerDes: messages to bytes and back, for bytes that are not shmbridge's own.

`find("json")` gives one to use from Python; `?serdes=NAME` in a URL gives it to a runner or a host. "bitstream", "json",
"flatbuffers" and "bytes" are the C core's; "protobuf" is here; others' come by entry points of the group
"shmbridge.serdes", as examples/yaml_serdes shows.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge import plugins
from shmbridge._native import lib
from shmbridge.errors import InvalidError, ShmbridgeError, UnsupportedError

CORE = ("bitstream", "json", "flatbuffers", "bytes")

_plugins: dict[str, Any] = {}  # those in use, by name
_adding = threading.RLock()  # a plug-in may connect while it is imported


class SerDes:
    """What a SerDes plug-in subclasses: `encode` and `decode` are all it must have. The URL's options that are parameters of
    its constructor come there as str.

    Values are numpy arrays, numpy scalars for rank 0, str, lists of str and `shmbridge.Ragged`; a decoder may give anything
    that `Runner.evaluate` takes. Methods may be called by several threads at once. Whatever they raise fails the message
    with the exception's type and text; a ShmbridgeError keeps its status. A decoder must stand any bytes, in time and
    memory that their number bounds.
    """

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        """The bytes of a message; what the format cannot hold is an UnsupportedError that names the field."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Mapping[str, Any]:
        """The message of these bytes; CorruptError where they are none."""
        raise NotImplementedError

    def encode_request(self, fields: Mapping[str, Any], want: np.dtype[Any] | None) -> bytes:
        """The bytes of a request, whose advice is wanted as dtype `want`; None: whatever the model gives."""
        return self.encode(fields)

    def decode_request(self, data: bytes) -> tuple[Mapping[str, Any], np.dtype[Any] | None]:
        """A request, and the dtype that its advice is wanted in where the bytes tell."""
        return self.decode(data), None

    def encode_advice(self, advice: Mapping[str, Any]) -> bytes:
        """The bytes of advice; a value without a name is called "advice"."""
        return self.encode(advice)

    def decode_advice(self, data: bytes, want: np.dtype[Any] | None) -> Mapping[str, Any]:
        """The advice of these bytes, which was wanted as dtype `want`. One value of another dtype is converted later if that
        is exact."""
        return self.decode(data)


def names() -> list[str]:
    """Every SerDes there is, sorted."""
    return sorted({*CORE, *plugins.names("serdes")})


def find(name: str, **options: str) -> SerDes:
    """A SerDes by name; options: its constructor's. Errors: UnsupportedError (none of that name, or it does not load),
    InvalidError (an option that it does not have, or not with that value)."""
    if name in CORE:
        from shmbridge.serdes._core import Core

        if options:
            raise InvalidError(f"the SerDes {name!r} takes no options, found {', '.join(options)}")
        return Core(name)
    plugin = _plugin(name)
    unknown = options.keys() - _parameters(plugin)
    if unknown:
        raise InvalidError(
            f"the SerDes {name!r} has no option {', '.join(sorted(unknown))}: expected {', '.join(sorted(_parameters(plugin))) or 'none'}"
        )
    try:
        made = plugin(**options)
    except ShmbridgeError:
        raise
    except Exception as error:
        raise InvalidError(
            f"the SerDes {name!r} cannot be made with the options {options}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, SerDes):
        raise UnsupportedError(
            f"the plug-in {name!r}: expected a shmbridge.serdes.SerDes, found {type(made).__name__}"
        )
    return made


def _plugin(name: str) -> Any:
    if name not in _plugins:
        if name not in names():
            raise UnsupportedError(
                f"no SerDes is called {name!r}: expected one of {', '.join(names())}"
            )
        _plugins[name] = plugins.find("serdes", name)
    return _plugins[name]


def _parameters(plugin: Any) -> set[str]:
    """The options that a plug-in's constructor takes."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in inspect.signature(plugin).parameters.values() if p.kind in named}


def ensure(name: str, **options: str) -> str:
    """Makes a SerDes known to the C core, unless it is; returns its name there, which tells the options too."""
    known = (
        f"{name}({','.join(f'{key}:{options[key]}' for key in sorted(options))})"
        if options
        else name
    )
    with _adding:
        if not lib.shmb_serdes_known(known.encode()):
            from shmbridge.serdes._register import register

            register(known, find(name, **options))
    return known


def resolve(url: str) -> str:
    """The URL for the C core: the SerDes that it names is known there, and the options that are the SerDes' own have become
    part of the name. Errors: as find's."""
    head, _, query = url.partition("?")
    parts = [(part, *part.partition("=")[::2]) for part in query.split("&")]
    chosen = dict(part[1:] for part in parts)
    name = chosen.get("serdes")
    if name is None or (lib.shmb_serdes_known(name.encode()) and name not in _plugins):
        return url
    own = {key: value for key, value in chosen.items() if key in _parameters(_plugin(name))}
    rest = [part for part, key, _ in parts if key not in own and key != "serdes"]
    return f"{head}?{'&'.join([f'serdes={ensure(name, **own)}', *rest])}"

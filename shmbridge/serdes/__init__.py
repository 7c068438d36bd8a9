"""SerDes convert messages to bytes and back, for formats other than shmbridge's own.

`find("json")` returns one for use in Python. `?serdes=NAME` in a URL selects one for a runner or a
host. "bitstream", "json" and "flatbuffers" are part of the C core, and "protobuf" of this
package. Entry points of the group "shmbridge.serdes" add others; see examples/yaml_serdes.
"""

from __future__ import annotations

import inspect
import threading
from functools import partial
from typing import Any

from shmbridge._native import lib
from shmbridge._urls import plugins
from shmbridge._urls.options import split
from shmbridge.errors import InvalidError, ShmbridgeError, UnsupportedError
from shmbridge.serdes._base import SerDes
from shmbridge.serdes._core import Core, register

__all__ = ["SerDes", "find"]

CORE = ("bitstream", "json", "flatbuffers")

_loaded: dict[str, Any] = {}  # the plug-ins in use, by name
_adding = threading.RLock()  # a plug-in may connect while it is imported


def find(name: str, **options: str) -> SerDes:
    """Returns a SerDes by name.

    Args:
        name: "bitstream", "json", "flatbuffers", "protobuf", or the name of an entry point.
        options: Its constructor's arguments.

    Raises:
        UnsupportedError: There is none of that name, or it cannot be loaded.
        InvalidError: It does not have that option, or refuses the value.
    """
    plugin = partial(Core, name) if name in CORE else _plugin(name)
    try:
        made = plugin(**options)
    except ShmbridgeError:
        raise
    except Exception as error:
        raise InvalidError(
            f"the SerDes {name!r} cannot be made with the options {options}, of "
            f"{', '.join(sorted(_parameters(plugin))) or 'none'}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, SerDes):
        raise UnsupportedError(
            f"the plug-in {name!r}: expected a shmbridge.serdes.SerDes, found {type(made).__name__}"
        )
    return made


def _plugin(name: str) -> Any:
    if name not in _loaded:
        missing = f"no SerDes is called {name!r}"
        _loaded[name] = plugins.find("serdes", name, missing, *CORE)
    return _loaded[name]


def _parameters(plugin: Any) -> set[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in inspect.signature(plugin).parameters.values() if p.kind in named}


def ensure(name: str, **options: str) -> str:
    """Registers a SerDes in the C core, unless it is registered. Returns its name there, which
    contains the options."""
    known = name
    if options:
        known += f"({','.join(f'{key}:{options[key]}' for key in sorted(options))})"
    with _adding:
        if not lib.shmb_serdes_known(known.encode()):
            register(known, find(name, **options))
    return known


def resolve(url: str) -> str:
    """The URL for the C core: the SerDes that it names is known there, and the options that are the
    SerDes' own have become part of the name. Errors: as find's."""
    where, chosen = split(url)
    name = chosen.get("serdes")
    if name is None or (lib.shmb_serdes_known(name.encode()) and name not in _loaded):
        return url
    own = {key: value for key, value in chosen.items() if key in _parameters(_plugin(name))}
    rest = [f"{key}={text}" for key, text in chosen.items() if key not in {*own, "serdes"}]
    return f"{where}?{'&'.join([f'serdes={ensure(name, **own)}', *rest])}"

"""Runner plug-ins in Python: each implements a URL's scheme, as an entry point of the group
"shmbridge.runners".

The C core checks and copies all values, so that `Runner` is the same for every scheme.
"""

from __future__ import annotations

import threading

from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge.runners._base import RunnerKind
from shmbridge.runners._register import register

__all__ = ["RunnerKind"]

_adding = threading.RLock()  # a plug-in may connect while it is imported


def ensure(scheme: str) -> None:
    """Makes the plug-in of that scheme known to the C core. Errors: UnsupportedError (there is
    none, it does not load, or is no RunnerKind)."""
    with _adding:
        if lib.shmb_scheme_known(scheme.encode()):
            return
        core = ffi.new("char[200]")
        lib.shmb_kind_names(core, len(core))
        missing = f'there is no runner for "{scheme}://"'
        kind = plugins.find("runners", scheme, missing, ffi.string(core).decode())
        register(scheme, kind)

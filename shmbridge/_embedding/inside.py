"""What the library has Python do, in the C program's process: build.py's init code imports this."""

from __future__ import annotations

from typing import Any

from shmbridge._native import ffi as core_ffi
from shmbridge._native import lib as core
from shmbridge._runner import urls
from shmbridge._urls import plugins


def begin(ffi: Any, lib: Any) -> None:
    """Gives the library (its own ffi and lib) the addresses of the core's functions, which it
    forwards to, and `resolve`."""
    for i in range(lib.name_count):
        address = core_ffi.addressof(core, ffi.string(lib.names[i]).decode())
        lib.table[i] = ffi.cast("void *", int(core_ffi.cast("uintptr_t", address)))

    def resolve(url: Any, text: Any, room: int) -> int:
        """Plug-ins that the URL names are known to the core from now on. text: the URL to open, or
        why not."""
        try:
            known = urls.resolve(ffi.string(url).decode(errors="surrogateescape"))
            status, said = 0, known.encode(errors="surrogateescape")
        except BaseException as error:
            status, said = plugins.outcome(error, core.SHMB_INVALID)
        said = said[: room - 1] + b"\0"
        ffi.memmove(text, said, len(said))
        return status

    ffi.def_extern("shmb_python_resolve", error=core.SHMB_SYSTEM)(resolve)

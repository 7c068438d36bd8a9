"""Python inside a C program, which cdef/src/runner/embedded.c starts: what the program's core lacks
is registered there."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

import shmbridge
from shmbridge import _config
from shmbridge._native import ffi, lib
from shmbridge._runner import urls
from shmbridge._urls import plugins
from shmbridge.errors import SystemCallError, UnsupportedError, raise_status


def write(output: Path | None = None) -> Path:
    """Writes down this interpreter and its shared library, a line each, for C programs; returns the
    file. output: None: where they look for it, in the installed package. Errors: UnsupportedError
    (no shared libpython), SystemCallError (the place is not writable)."""
    output = _config.prefix() / "lib" / "embedded-python" if output is None else output
    library = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    if ".so" not in library.name or not library.exists():
        raise UnsupportedError(
            f"{sys.executable} has no shared library, which a C program needs to hold it: expected "
            f"{library.parent}/libpython*.so*, found {library.name}: "
            "install it (Debian, Ubuntu: apt-get install libpython3-dev; pyenv: "
            "PYTHON_CONFIGURE_OPTS=--enable-shared; conda and uv have it)"
        )
    try:
        output.write_text(f"{sys.executable}\n{library}\n")
    except OSError as error:
        raise SystemCallError(
            f"{output}: {error.strerror}: choose a place with -o FILE, and set $SHMBRIDGE_PYTHON "
            "to it"
        ) from error
    return output


def begin(version: str, address: int) -> None:
    """Gives a C program's core, of that version, the functions that it calls in its struct
    shmb_embedding. Errors: UnsupportedError."""
    if version != shmbridge.__version__:
        raise UnsupportedError(
            f"its package shmbridge is {shmbridge.__version__}, and the program's C library "
            f"{version}: expected one version of both"
        )
    core = ffi.cast("struct shmb_embedding *", address)
    core.runner.open, core.runner.close = lib.shmb_python_open, lib.shmb_python_close
    core.runner.evaluate = lib.shmb_python_evaluate
    core.serdes.encode, core.serdes.decode = lib.shmb_python_encode, lib.shmb_python_decode
    core.resolve = lib.shmb_python_resolve


def _resolve(core: Any, text: Any, room: int) -> int:
    try:
        url = urls.resolve(ffi.string(text).decode(errors="surrogateescape"))
        for name, handle, plugin in plugins.kept:
            runs = ffi.typeof(plugin) is ffi.typeof("shmb_runner_kind *")
            status = (core.add_runner if runs else core.add_serdes)(name, handle)
            if status not in (lib.SHMB_OK, lib.SHMB_IN_USE):
                raise_status(status, "the program's registry is full")
        status, said = lib.SHMB_OK, url.encode(errors="surrogateescape")
    except BaseException as error:
        status, said = plugins.outcome(error, lib.SHMB_INVALID)
    said = said[: room - 1] + b"\0"
    ffi.memmove(text, said, len(said))
    return int(status)


ffi.def_extern("shmb_python_resolve", error=lib.SHMB_SYSTEM)(_resolve)

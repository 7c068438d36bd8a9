"""Plug-ins: what stands behind a URL's scheme, and SerDes, found by their names.

shmbridge's own are modules `shmbridge.GROUP.NAME` that hold a `PLUGIN`; others' are entry points of the group
`shmbridge.GROUP`, whose name is the scheme or the SerDes. GROUP is "hosts" (a subclass of `shmbridge.Host`), "runners" (a
subclass of `shmbridge.runners.RunnerKind`) or "serdes" (a subclass of `shmbridge.serdes.SerDes`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import threading
from pathlib import Path
from typing import Any

from shmbridge._native import ffi, lib
from shmbridge.errors import ShmbridgeError, UnsupportedError

python_schemes: set[str] = set()  # of the runners that this package has registered in the C core
# The libraries that the C core loads: the variable that names one, and where a wheel has it.
WHEELS = {
    "onnx": ("SHMBRIDGE_ONNXRUNTIME", "onnxruntime", "capi/libonnxruntime.so*"),
    "tflite": ("SHMBRIDGE_LITERT", "ai_edge_litert", "libLiteRt.so"),
}
_carried = threading.local()


def _entry_points(group: str) -> Any:
    from importlib.metadata import entry_points  # takes as long to import as all of shmbridge

    return entry_points(group=f"shmbridge.{group}")


def _own(group: str) -> list[str]:
    package = importlib.import_module(f"shmbridge.{group}")
    found = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return [name for name in found if not name.startswith("_")]


def names(group: str) -> list[str]:
    """Every plug-in of a group, built in or installed, sorted."""
    return sorted({*_own(group), *_entry_points(group).names})


def find(group: str, name: str) -> Any:
    """The plug-in of that name, imported now. UnsupportedError says why it does not load, or lists those there are."""
    try:
        if name in _own(group):
            return importlib.import_module(f"shmbridge.{group}.{name}").PLUGIN
        for entry in _entry_points(group).select(name=name):
            return entry.load()
    except ShmbridgeError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"the {group} plug-in {name!r} does not load: {type(error).__name__}: {error}"
        ) from error
    known = [*names(group), *(["shm"] if group == "hosts" else [])]  # which needs no plug-in
    raise UnsupportedError(
        f"no {group} plug-in is called {name!r}: expected one of {', '.join(known) or '(none is installed)'}"
    )


def resolve(url: str) -> str:
    """The URL for `shmb_open`: Python plug-ins that it names, a SerDes or what is behind the scheme, are known to the C core
    when this returns, and what the core loads for a scheme is named. Errors: UnsupportedError, and what the plug-in raises."""
    scheme, mark, _ = url.partition("://")
    if not mark:
        return url
    if not lib.shmb_scheme_known(scheme.encode()):
        from shmbridge import runners

        runners.ensure(scheme)
    elif scheme == "pipe" and "serdes=" in url:
        from shmbridge import serdes

        return serdes.resolve(url)
    elif scheme in WHEELS:
        return _with_library(url, *WHEELS[scheme])
    return url


def _with_library(url: str, variable: str, package: str, pattern: str) -> str:
    """The URL that also says where the package, which is not imported, has its library, unless that or the environment names one."""
    if "library=" in url or os.environ.get(variable):
        return url
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations if spec else None) or []:
        for file in sorted(Path(place).glob(pattern)):
            return f"{url}{'&' if '?' in url else '?'}library={file}"
    return url


# ---- In callbacks from C ----


def failed(sink: Any, error: BaseException, status: int) -> int:
    """Ends a callback that raised: the sink gets its outcome. Returns the status."""
    status, text = outcome(error, status)
    return int(lib.shmb_sink_fail(sink, status, text))


def outcome(error: BaseException, status: int) -> tuple[int, bytes]:
    """What C is told of an exception: the status of a ShmbridgeError, else `status`, and its text. What no program catches
    (Ctrl-C) is kept for raise_carried."""
    try:
        text = str(error)
        if not isinstance(error, ShmbridgeError):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    except Exception:  # its __str__ fails
        text = type(error).__name__
    if isinstance(error, ShmbridgeError):
        status = error.status or status
    elif isinstance(error, MemoryError):
        status = lib.SHMB_NO_MEMORY
    elif not isinstance(error, Exception):
        status = lib.SHMB_INTERRUPTED
        carry(error)
    return status, text.encode(errors="replace").replace(b"\0", b"\\0")


def carry(error: BaseException) -> None:
    """Keeps an exception that C cannot pass on, for this thread's next raise_carried."""
    _carried.error = error.with_traceback(None)  # its frames would keep arrays alive


def raise_carried() -> None:
    """Raises what a callback of this thread could not pass on through C."""
    error = getattr(_carried, "error", None)
    if error is not None:
        _carried.error = None
        raise error


def c_text(text: str) -> Any:
    """A C string that the caller keeps."""
    return ffi.new("char[]", text.encode())

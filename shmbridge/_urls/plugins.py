"""Plug-ins: hosts and runners by a URL's scheme, and SerDes by name.

shmbridge's own are modules `shmbridge.GROUP.NAME` with a `PLUGIN`. Others are entry points of the
group `shmbridge.GROUP`, whose name is the scheme or the SerDes. GROUP is "hosts" (a subclass of
`shmbridge.Host`), "runners" (a subclass of `shmbridge.runners.RunnerKind`) or "serdes" (a subclass
of `shmbridge.serdes.SerDes`).
"""

import importlib
import pkgutil
import threading
from collections.abc import Callable
from typing import Any

from shmbridge import errors
from shmbridge._native import ffi, lib

python_schemes: set[str] = set()  # of the runners that this package has registered in the C core
kept: list[tuple[Any, Any, Any]] = []  # name, handle and struct, which C points to, for ever
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


def find(group: str, name: str, missing: str, *core: str) -> Any:
    """The plug-in of that name, imported. UnsupportedError: why it cannot be loaded, or `missing`
    with the known ones; core: those that need no plug-in."""
    try:
        if name in _own(group):
            return importlib.import_module(f"shmbridge.{group}.{name}").PLUGIN
        for entry in _entry_points(group).select(name=name):
            return entry.load()
    except errors.ShmbridgeError:
        raise
    except Exception as error:
        raise errors.UnsupportedError(
            f"the {group} plug-in {name!r} does not load: {type(error).__name__}: {error}"
        ) from error
    raise errors.UnsupportedError(f"{missing}: expected one of {', '.join([*core, *names(group)])}")


def register(struct: str, add: Callable[[Any], int], name: str, plugin: Any, *calls: Any) -> None:
    """Makes a plug-in known to the C core for the life of the process. struct, add: its type in C,
    and the function that takes it. Errors: InUseError, NoMemoryError (the core's registry is
    full)."""
    text, handle = c_text(name), ffi.new_handle(plugin)
    made = ffi.new(f"{struct} *", (ffi.sizeof(struct), text, handle, *calls))
    status = add(made)
    if status:
        full, taken = "the core's registry is full", "its name is taken or empty"
        why = full if status == lib.SHMB_NO_MEMORY else taken
        errors.raise_status(status, f"the plug-in {name!r} cannot be registered: {why}")
    kept.append((text, handle, made))


# ---- In callbacks from C ----


def failed(sink: Any, error: BaseException, status: int) -> int:
    """Ends a callback that raised: the sink gets its outcome. Returns the status."""
    status, text = outcome(error, status)
    return int(lib.shmb_sink_fail(sink, status, text))


def outcome(error: BaseException, status: int) -> tuple[int, bytes]:
    """The status and text for C of an exception: the status of a ShmbridgeError, else `status`.
    Exceptions that programs do not catch (Ctrl-C) are kept for raise_carried."""
    text = str(error) if isinstance(error, errors.ShmbridgeError) else errors.error_text(error)
    if isinstance(error, errors.ShmbridgeError):
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


def split_place(place: str) -> tuple[str, str]:
    """Module, or file, and function of "module:function" and "/folder/file.py:function".
    InvalidError: it has neither form."""
    module, _, name = place.rpartition(":")
    if not (module and name):
        raise errors.InvalidError(
            f"{place}: expected MODULE:FUNCTION, such as my_model:advise, or FILE:FUNCTION, "
            "such as /home/me/my_model.py:advise"
        )
    return module, name

"""shmbridge: how a compiler asks a machine-learning model for advice, through shared memory.

Names are imported when they are first used. Who gives up the right to read Python's files (setuid, chroot) uses one before.
"""

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from shmbridge._native import ffi as _ffi
    from shmbridge._native import lib as _lib
except ModuleNotFoundError as _error:
    if _error.name != "shmbridge._native":
        raise
    raise ImportError(
        f"{__path__[0]} is shmbridge's source, which is not built: run Python in another folder, or with -P (3.11), to get the installed "
        "package (pip install .)"
    ) from None

if TYPE_CHECKING:
    from shmbridge._batch import Batch
    from shmbridge._dtype import TensorSpec
    from shmbridge._host import Host
    from shmbridge._request import Request
    from shmbridge._runner import Runner, connect
    from shmbridge._serving import Serving
    from shmbridge._tensor import Ragged, Texts
    from shmbridge.errors import (
        BusyError,
        ClosedError,
        CorruptError,
        DeadlineError,
        DroppedError,
        ForkedError,
        HostGoneError,
        IncompatibleError,
        InexactError,
        InterruptedCallError,
        InUseError,
        InvalidError,
        MismatchError,
        ModelError,
        NoHostError,
        NoMemoryError,
        NotPermittedError,
        RunnerGoneError,
        ShmbridgeError,
        SystemCallError,
        TooLargeError,
        UnsupportedError,
    )

__version__: str = _ffi.string(_lib.shmb_version()).decode()

__all__ = [
    "Batch",
    "BusyError",
    "ClosedError",
    "CorruptError",
    "DeadlineError",
    "DroppedError",
    "ForkedError",
    "Host",
    "HostGoneError",
    "InUseError",
    "IncompatibleError",
    "InexactError",
    "InterruptedCallError",
    "InvalidError",
    "MismatchError",
    "ModelError",
    "NoHostError",
    "NoMemoryError",
    "NotPermittedError",
    "Ragged",
    "Request",
    "Runner",
    "RunnerGoneError",
    "Serving",
    "ShmbridgeError",
    "SystemCallError",
    "TensorSpec",
    "Texts",
    "TooLargeError",
    "UnsupportedError",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> Any:
    """What is public, and modules, imported when first used: numpy takes longer to import than a small file to compile."""
    homes = (
        ("errors", "_dtype", "_tensor", "_batch", "_request", "_runner", "_serving", "_host")
        if name in __all__
        else ()
    )
    for home in homes:
        if hasattr(module := import_module(f"shmbridge.{home}"), name):
            return globals().setdefault(name, getattr(module, name))
    with suppress(ModuleNotFoundError):
        return import_module(f"shmbridge.{name}")
    raise AttributeError(f"module 'shmbridge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""shmbridge: a compiler asks a machine-learning model for advice, through shared memory.

Most names are imported at their first use. If your program drops privileges (setuid, chroot), use
one name before, so that its module is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from shmbridge._native import ffi as _ffi
    from shmbridge._native import lib as _lib
except ModuleNotFoundError as _error:
    if _error.name != "shmbridge._native":
        raise
    raise ImportError(
        f"{__path__[0]} is shmbridge's source, which is not built: run Python in another folder, "
        "or with -P (3.11), to get the installed "
        "package (pip install .)"
    ) from None

from shmbridge import errors as _errors
from shmbridge.errors import *  # noqa: F403 # which is a list of them

if TYPE_CHECKING:
    from shmbridge._host.batch import Batch as Batch
    from shmbridge._host.host import Host as Host
    from shmbridge._host.request import Request as Request
    from shmbridge._host.serving import Serving as Serving
    from shmbridge._runner.runner import Runner as Runner
    from shmbridge._runner.runner import connect as connect
    from shmbridge._values.dtypes import TensorSpec as TensorSpec
    from shmbridge._values.tensor import Ragged as Ragged
    from shmbridge._values.tensor import StringList as StringList

__version__: str = _ffi.string(_lib.shmb_version()).decode()

# Imported when first used: numpy takes longer to import than a small file to compile.
_MODULES = {
    "Batch": "shmbridge._host.batch",
    "Host": "shmbridge._host.host",
    "Ragged": "shmbridge._values.tensor",
    "Request": "shmbridge._host.request",
    "Runner": "shmbridge._runner.runner",
    "Serving": "shmbridge._host.serving",
    "StringList": "shmbridge._values.tensor",
    "TensorSpec": "shmbridge._values.dtypes",
    "connect": "shmbridge._runner.runner",
}
# Literals, because type checkers evaluate no other.
__all__ = ["Batch", "Host", "Ragged", "Request", "Runner", "Serving", "StringList"]
__all__ += ["TensorSpec", "connect", "__version__"]
__all__ += _errors.__all__


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'shmbridge' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))


def __dir__() -> list[str]:
    return __all__

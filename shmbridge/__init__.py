"""shmbridge: how a compiler asks a machine-learning model for advice, through shared memory."""

import sys as _sys

from shmbridge._native import ffi as _ffi
from shmbridge._native import lib as _lib

# Reference counts tell nothing certain on a free-threaded Python: there everything is a copy.
_free_threaded = not getattr(_sys, "_is_gil_enabled", lambda: True)()

from shmbridge.batch import Batch  # noqa: E402
from shmbridge.errors import (  # noqa: E402
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
from shmbridge.host import Host  # noqa: E402
from shmbridge.request import Request  # noqa: E402
from shmbridge.runner import Runner, connect  # noqa: E402
from shmbridge.tensor import Ragged, TensorSpec  # noqa: E402

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
    "ShmbridgeError",
    "SystemCallError",
    "TensorSpec",
    "TooLargeError",
    "UnsupportedError",
    "__version__",
    "connect",
]

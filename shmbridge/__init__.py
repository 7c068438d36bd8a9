"""shmbridge: how a compiler asks a machine-learning model for advice, through shared memory."""

from shmbridge._native import ffi as _ffi
from shmbridge._native import lib as _lib
from shmbridge.batch import Batch
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
from shmbridge.host import Host
from shmbridge.request import Request
from shmbridge.runner import Runner, connect
from shmbridge.tensor import Ragged, TensorSpec, Texts

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
    "Texts",
    "TooLargeError",
    "UnsupportedError",
    "__version__",
    "connect",
]

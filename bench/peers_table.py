"""The peers of peers.py."""

from __future__ import annotations

from peers_base import Peer
from peers_hosts import (
    CompilerInterface,
    Cpp,
    CppPipeHost,
    Grpc,
    GrpcHost,
    GrpcServicer,
    PipeHost,
)
from peers_memory import (
    FasterFifo,
    Iceoryx2,
    Iceoryx2Events,
    SharedMemory,
    Shmbridge,
    ShmbridgeC,
    ShmbridgeSpin,
)
from peers_sockets import Nng, Pipe, UnixSocket, Zenoh, Zmq

PEERS: tuple[type[Peer], ...] = (
    ShmbridgeC,
    Shmbridge,
    ShmbridgeSpin,
    Iceoryx2,
    Iceoryx2Events,
    SharedMemory,
    Pipe,
    UnixSocket,
    FasterFifo,
    Zmq,
    Nng,
    Zenoh,
    Grpc,
    GrpcServicer,
    GrpcHost,
    CompilerInterface,
    PipeHost,
    Cpp,
    CppPipeHost,
)

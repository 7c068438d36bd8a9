"""Peers whose clients shmbridge's hosts serve too: gRPC, and the named pipes of
ML-Compiler-Bridge."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.transport.peers_base import Ask, Peer, model


class GrpcCpp(Peer):
    """A stream of messages over a Unix socket, which is faster than unary calls in C++:
    grpc.io/docs/guides/performance."""

    name = "gRPC, C++ on both sides"
    needs = ("peers_ask_grpc",)

    @property
    def _address(self) -> str:
        return f"unix:{self.folder}/grpc"

    def server(self) -> list[str]:
        return [str(self.build / "compilation_grpc_host"), self._address]

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_ask_grpc"), self._address]


class Grpc(Peer):
    """Unary calls, which are faster than streams in Python, with messages as a servicer has them:
    repeated float, int64."""

    name = "gRPC"
    needs = ("grpc",)
    method = "/peers.Peers/Ask"
    options = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    _address = GrpcCpp._address

    def serve(self, ready: Callable[[], None]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        import grpc

        from bench.transport.peers_pb2 import Advice, Features

        handler = grpc.unary_unary_rpc_method_handler(
            lambda question, _: Advice(advice=model(np.array(question.x, np.float32))),
            request_deserializer=Features.FromString,
            response_serializer=Advice.SerializeToString,
        )
        server = grpc.server(ThreadPoolExecutor(self.clients), options=self.options)
        _, service, method = self.method.split("/")
        handlers = grpc.method_handlers_generic_handler(service, {method: handler})
        server.add_generic_rpc_handlers((handlers,))
        server.add_insecure_port(self._address)
        server.start()
        ready()
        server.wait_for_termination()

    def connect(self, client: int) -> Ask:
        import grpc

        from bench.transport.peers_pb2 import Advice, Features

        self.channel = grpc.insecure_channel(self._address, self.options)
        grpc.channel_ready_future(self.channel).result(20)
        call = self.channel.unary_unary(
            self.method,
            request_serializer=Features.SerializeToString,
            response_deserializer=Advice.FromString,
        )
        return lambda array: call(Features(x=array)).advice


class GrpcHost(Grpc):
    """The same client with shmbridge's host."""

    name = "gRPC, shmbridge's host"

    def serve(self, ready: Callable[[], None]) -> None:
        import shmbridge

        url = f"grpc://{self._address}?service={self.method[1:]}&messages=bench.transport.peers_pb2"
        with shmbridge.Host(url, channels=self.clients, request_bytes=self.size + 4096) as host:
            ready()
            for request in host:
                request.reply(model(request["x"]))


# ---- Named pipes: a pair for each compiler ----


class CompilerInterface(Peer):
    """ML-Compiler-Bridge's Python side from PyPI, with a C compiler that writes its bitstream, which
    was faster than its own C++ runner."""

    name = "compilerinterface, C asks"
    needs = ("compilerinterface",)

    def _path(self, client: int) -> str:
        return f"{self.folder}/pipe{client}"

    def _threads(self, ready: Callable[[], None], serve: Callable[[Any], None]) -> None:
        ends = [self.end(self._path(i)) for i in range(self.clients)]
        threads = [threading.Thread(target=serve, args=(end,), daemon=True) for end in ends[1:]]
        for thread in threads:
            thread.start()
        ready()
        serve(ends[0])

    def end(self, path: str) -> Any:
        from compilerinterface import PipeCompilerInterface

        return PipeCompilerInterface("bytes", path)

    def serve(self, ready: Callable[[], None]) -> None:
        def each(end: Any) -> None:
            end.reset_pipes()  # waits for the compiler
            while True:
                end.populate_buffer(ctypes.c_long(model(end.evaluate()[0])))

        self._threads(ready, each)

    def program(self, client: int) -> list[str]:
        return [str(self.build / "peers_ask"), self._path(client)]


class PipeHost(CompilerInterface):
    """The same client with shmbridge's host."""

    name = "the same pipes, C asks, shmbridge's host"
    needs = ()

    def end(self, path: str) -> Any:
        import shmbridge

        return shmbridge.Host(f"pipe://{path}", request_bytes=self.size + 4096)

    def serve(self, ready: Callable[[], None]) -> None:
        def each(host: Any) -> None:
            for request in host:
                request.reply(np.int64(model(request["x"])))

        self._threads(ready, each)


PEERS = (GrpcCpp, Grpc, GrpcHost, CompilerInterface, PipeHost)

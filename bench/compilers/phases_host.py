"""POSET-RL's network behind a gRPC service of its own, for integration.py, which counts it and asks it
once: phases_host.py ADDRESS MODEL.onnx. $PYTHONPATH has phases_pb2.py and examples/phase_ordering."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import phases_pb2
from ddqn import Q


def serve(address: str, q: Q) -> None:
    def stream(modules: Iterator[Any], _: Any) -> Iterator[Any]:
        for module in modules:
            x = q.inputs({"ir2vec": np.array(module.ir2vec, np.float32)[None]})
            yield phases_pb2.Action(index=int(q.outputs(x).argmax()))

    codec = phases_pb2.Module.FromString, phases_pb2.Action.SerializeToString
    handlers = {"Stream": grpc.stream_stream_rpc_method_handler(stream, *codec)}
    server = grpc.server(ThreadPoolExecutor(8))
    policy = grpc.method_handlers_generic_handler("phases.Policy", handlers)
    server.add_generic_rpc_handlers((policy,))
    server.add_insecure_port(address)
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    serve(sys.argv[1], Q.read_onnx(Path(sys.argv[2])))

"""The policy in Python behind other protocols, for compilation.py. Prints a line when it is ready.

compilation_hosts.py llvm BASE        LLVM's interactive channel, for one compiler
compilation_hosts.py mlcb BASE        PyPI's compilerinterface, for one compiler
compilation_hosts.py grpc ADDRESS     compilation.proto; ADDRESS is in the folder of its descriptors
"""

import ctypes
import json
import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "llvm" / "inliner"))
from policy import BIAS, WEIGHTS  # noqa: E402


def advise(values: Sequence[Any], places: Mapping[int, float]) -> int:
    """policy.py's, from all features in LLVM's order."""
    cost = 0.0
    for place, weight in places.items():
        cost += weight * values[place]
    return int(cost + BIAS < 0)


def places(names: Sequence[str]) -> dict[int, float]:
    """Each weight by its feature's place."""
    return {names.index(name): weight for name, weight in WEIGHTS.items()}


def serve_llvm(base: str) -> None:
    for end in (".in", ".out"):
        os.mkfifo(base + end)
    print("ready", flush=True)
    with open(base + ".in", "wb", buffering=0) as reply, open(base + ".out", "rb") as questions:
        features = json.loads(questions.readline())["features"]
        weights = places([feature["name"] for feature in features])
        tensors = struct.Struct(f"{len(features)}q")
        while line := questions.readline():
            if "observation" in json.loads(line):
                values = tensors.unpack(questions.read(tensors.size))
                questions.read(1)
                reply.write(struct.pack("q", advise(values, weights)))


def serve_mlcb(base: str, names: Sequence[str]) -> None:
    from compilerinterface import PipeCompilerInterface

    end, weights = PipeCompilerInterface("bytes", base), places(names)
    print("ready", flush=True)
    end.reset_pipes()  # waits for the compiler
    with suppress(json.JSONDecodeError):  # of the end of the compiler's questions
        while True:
            values = [feature[0] for feature in end.evaluate()]
            end.populate_buffer(ctypes.c_long(advise(values, weights)))


def serve_grpc(address: str, names: Sequence[str]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool, weights = descriptor_pool.DescriptorPool(), places(names)
    descriptors = Path(address.removeprefix("unix:")).with_name("descriptors").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    types = pool.FindFileByName("compilation.proto").message_types_by_name
    features, advice = (message_factory.GetMessageClass(types[n]) for n in ("Features", "Advice"))

    def stream(questions: Iterator[Any], _: Any) -> Iterator[Any]:
        for question in questions:
            yield advice(inlining_decision=advise(question.values, weights))

    codec = features.FromString, advice.SerializeToString
    handlers = {"Stream": grpc.stream_stream_rpc_method_handler(stream, *codec)}
    server = grpc.server(ThreadPoolExecutor(64))
    policy = grpc.method_handlers_generic_handler("compilation.Policy", handlers)
    server.add_generic_rpc_handlers((policy,))
    server.add_insecure_port(address)
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    kind, address, *names = sys.argv[1:]
    if kind == "llvm":
        serve_llvm(address)
    elif kind == "mlcb":
        serve_mlcb(address, names)
    else:
        serve_grpc(address, names)

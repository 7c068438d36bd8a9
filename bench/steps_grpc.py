"""Environments behind gRPC, with CompilerGym 0.2.5's messages: a C++ service for each, as its LLVM
environment has one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SPACES = [0, 1]  # of steps_grpc.cpp: the observation, and the reward
SERVICE = "/compiler_gym.CompilerGymService/"
OPTIONS = [  # as in CompilerGym's client
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 512 * 1024),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
]


def build(folder: Path) -> Path:
    """The service.

    Raises:
        FileNotFoundError: The machine lacks what that takes."""
    plugin = shutil.which("grpc_cpp_plugin")
    if plugin is None:
        raise FileNotFoundError(
            "grpc_cpp_plugin is missing (Debian: g++ pkg-config libgrpc++-dev protobuf-compiler-grpc)"
        )
    subprocess.run(
        # the protoc next to it: another one's C++ may not match the system's headers
        [str(Path(plugin).with_name("protoc")), f"-I{HERE}", str(HERE / "compilergym.proto")]
        + [f"--cpp_out={folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"]
        + [f"--descriptor_set_out={folder / 'messages'}"],
        check=True,
    )
    libraries = subprocess.check_output(
        ["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"], text=True
    )
    sources = [
        HERE / "steps_grpc.cpp",
        *(folder / f"compilergym.{part}.cc" for part in ("pb", "grpc.pb")),
    ]
    program = folder / "steps_grpc"
    subprocess.run(
        ["c++", "-std=c++17", "-O2", f"-I{folder}", *map(str, sources), *shlex.split(libraries)]
        + ["-o", str(program)],
        check=True,
    )
    return program


class GrpcVector:
    """n environments, each with its own service, channel and session. Sends all actions before it
    waits for the first reply."""

    def __init__(self, program: Path, n: int, length: int) -> None:
        import grpc
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(
            (program.parent / "messages").read_bytes()
        )
        for file in files.file:
            pool.Add(file)
        self.types = types = {
            name.rpartition(".")[2]: message_factory.GetMessageClass(descriptor)
            for name, descriptor in pool.FindFileByName(
                "compilergym.proto"
            ).message_types_by_name.items()
        }
        self.services, self.channels, self.sessions = [], [], [0] * n
        self.starts: list[Any] = []
        self.steps: list[Any] = []
        for _ in range(n):
            service = subprocess.Popen(
                [str(program), str(length)], stdout=subprocess.PIPE, text=True
            )
            self.services.append(service)
            assert service.stdout is not None
            port = int(service.stdout.readline())
            channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
            self.channels.append(channel)
            for calls, name in ((self.starts, "StartSession"), (self.steps, "Step")):
                calls.append(
                    channel.unary_unary(
                        SERVICE + name,
                        types[f"{name}Request"].SerializeToString,
                        types[f"{name}Reply"].FromString,
                    )
                )
        self.observations = np.zeros((n, 300), np.float32)

    def reset(self) -> None:
        for i in range(len(self.sessions)):
            self._start(i)

    def step(self, actions: Any) -> Any:
        """observations float32[n, 300], rewards float64[n], dones bool[n]. The next episode begins
        in the same step."""
        request, event = self.types["StepRequest"], self.types["Event"]
        n = len(self.sessions)
        requests = [
            request(
                session_id=self.sessions[i],
                action=[event(int64_value=int(actions[i]))],
                observation_space=SPACES,
            )
            for i in range(n)
        ]
        if n == 1:  # less work than a future
            replies = [self.steps[0](requests[0], timeout=60)]
        else:
            futures = [self.steps[i].future(requests[i], timeout=60) for i in range(n)]
            replies = [future.result() for future in futures]
        rewards, dones = np.zeros(n), np.zeros(n, bool)
        for i, reply in enumerate(replies):
            self._observe(i, reply)
            rewards[i], dones[i] = reply.observation[1].double_value, reply.end_of_session
            if dones[i]:
                self._start(i)
        return self.observations.copy(), rewards, dones

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for service in self.services:
            service.kill()
            service.communicate()

    def _start(self, i: int) -> None:
        request = self.types["StartSessionRequest"](
            benchmark=self.types["Benchmark"](uri=f"walk/{os.getpid()}"), observation_space=SPACES
        )
        reply = self.starts[i](request, timeout=60)
        self.sessions[i] = reply.session_id
        self._observe(i, reply)

    def _observe(self, i: int, reply: Any) -> None:
        tensor = reply.observation[0].float_tensor
        self.observations[i] = np.array(tensor.value, np.float32).reshape(tuple(tensor.shape))

"""A session of phase ordering with the model in the compiler, and as in CompilerGym, where a Python
program steps the compiler as a gRPC service.

    python bench/session.py [--rounds N] [--json FILE]

plain   opt-22 runs the passes that the policy chose, and asks nothing
onnx    examples/phase_ordering in opt-22, and the model by onnx://
aot     the same by aot://, which has no runtime to load
shm     the same, and the model with ONNX Runtime in a Python host
gym     the same compiler as a service: StartSession, and a Step for each action. The messages have
        the shape of CompilerGym's: a session's number and a list of actions go to the service; an
        observation as a list of int64, a reward and the end come back. The client asks ONNX
        Runtime in Python. CompilerGym's own service is in C++ and for LLVM 10; here it is a
        servicer in Python, which steps opt through shared memory

A session is one module, one opt and an action for each of phase_policy.py's. All ways end with the
same module. Needs what deploy.py needs for phases, and `pip install 'shmbridge[gym,grpc,onnx]'`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import phase_policy
from deploy import Way, as_chosen, phases, running
from program import SHMBRIDGE, options, report, started, turns
from run import machine

HERE = Path(__file__).parent
ADDRESS = "unix:{folder}/gym"


def messages() -> dict[str, Any]:
    """The result of protoc for the messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    fields: dict[str, list[tuple[str, int, int, str]]] = {
        "StartRequest": [("benchmark", field.TYPE_STRING, one, "")],
        "StepRequest": [
            ("session_id", field.TYPE_INT64, one, ""),
            ("action", field.TYPE_INT32, many, ""),
        ],
        "Int64List": [("value", field.TYPE_INT64, many, "")],
        "Observation": [("int64_list", field.TYPE_MESSAGE, one, ".gym.Int64List")],
        "StepReply": [
            ("session_id", field.TYPE_INT64, one, ""),
            ("end_of_session", field.TYPE_BOOL, one, ""),
            ("observation", field.TYPE_MESSAGE, many, ".gym.Observation"),
            ("reward", field.TYPE_DOUBLE, one, ""),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="gym.proto", package="gym", syntax="proto3")
    for name, its in fields.items():
        message = file.message_type.add(name=name)
        for number, (called, kind, label, of) in enumerate(its, 1):
            message.field.add(
                name=called, number=number, type=kind, label=label, type_name=of or None
            )
    descriptor_pool.Default().Add(file)
    types = descriptor_pool.Default().FindFileByName("gym.proto").message_types_by_name
    return {name: message_factory.GetMessageClass(types[name]) for name in fields}


def serve(folder: str, name: str) -> None:
    """The service: a compiler for each session, stepped by CompilerEnv. Prints a line when it is
    ready, and serves until SIGTERM."""
    import grpc

    from shmbridge.envs import CompilerEnv

    made = messages()
    commands = json.loads(Path(folder, "commands.json").read_text())
    env = CompilerEnv(f"shm://{name}", actions=phase_policy.COUNT, timeout=60)
    url = os.environ | {"SHMBRIDGE_URL": f"shm://{name}?connect_timeout=30"}
    opened: list[subprocess.Popen[bytes]] = []

    def reply(observation: Any, reward: float = 0.0, over: bool = False) -> Any:
        answer = made["StepReply"](session_id=len(opened), end_of_session=over, reward=reward)
        for feature in () if over else ("counters", "used"):
            answer.observation.add().int64_list.value.extend(
                observation[feature].astype(int).tolist()
            )
        return answer

    def start(request: Any, _: Any) -> Any:
        opened.append(subprocess.Popen(commands[request.benchmark], env=url))
        return reply(env.reset()[0])

    def step(request: Any, _: Any) -> Any:
        for action in request.action:
            observation, reward, terminated, truncated, info = env.step(action)
        if (terminated or truncated) and (opened[-1].wait() or truncated):
            raise RuntimeError(f"the compiler failed: {info}")
        return reply(observation, reward, terminated)

    def handler(function: Any, request: str) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            function, made[request].FromString, made["StepReply"].SerializeToString
        )

    server = grpc.server(ThreadPoolExecutor(1))  # CompilerEnv needs one thread
    methods = {"Start": handler(start, "StartRequest"), "Step": handler(step, "StepRequest")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gym.Gym", methods),))
    server.add_insecure_port(ADDRESS.format(folder=folder))
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    print("ready", flush=True)
    with closing(env):
        server.wait_for_termination()


class Gym:
    """The client: an environment like CompilerGym's, and the policy."""

    def __init__(self, folder: Path, model: Path) -> None:
        import grpc
        import onnxruntime

        made = messages()
        self.made = made
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.model = onnxruntime.InferenceSession(str(model), options)
        self.channel = grpc.insecure_channel(ADDRESS.format(folder=folder))
        self.call = {
            method: self.channel.unary_unary(
                f"/gym.Gym/{method}",
                request_serializer=made[f"{method}Request"].SerializeToString,
                response_deserializer=made["StepReply"].FromString,
            )
            for method in ("Start", "Step")
        }

    def session(self, benchmark: str) -> list[int]:
        """Plays one, and returns its actions."""
        state = self.call["Start"](self.made["StartRequest"](benchmark=benchmark))
        actions = []
        while not state.end_of_session:
            names = ("counters", "used")
            values = [np.array(each.int64_list.value, np.float32) for each in state.observation]
            scores = self.model.run(None, dict(zip(names, values, strict=True)))[0]
            actions.append(int(scores.argmax()))
            step = self.made["StepRequest"](session_id=state.session_id, action=actions[-1:])
            state = self.call["Step"](step)
        return actions


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    case = phases(folder, None)
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
    name = f"session-{os.getpid()}"
    onnx = Way("onnx", f"onnx://{case.model}", case, folder)
    shm = Way("shm", f"shm://{name}", case, folder)
    aot = Way("aot", f"aot://{folder}/phases.so", case, folder)
    subprocess.run([SHMBRIDGE, "compile", case.model, "-o", folder / "phases.so"], check=True)
    plain, gym = Way("plain", "", case, folder), Way("gym", "", case, folder)
    onnx.decide()
    as_chosen(case, onnx)
    commands = [
        [*[word.replace("{print}", "") for word in command], str(out)]
        for command, out in zip(case.asking, gym.outputs, strict=True)
    ]
    (folder / "commands.json").write_text(json.dumps({str(i): c for i, c in enumerate(commands)}))
    with ExitStack() as stack:
        stack.enter_context(running(folder, "serve", name, "--onnx", str(case.model)))
        words = [sys.executable, str(HERE / "session.py"), "--serve", str(folder), f"{name}-gym"]
        stack.enter_context(started(*words))
        client = Gym(folder, case.model)

        def play() -> None:
            start = time.perf_counter()
            gym.decisions = [a for i in range(len(commands)) for a in client.session(str(i))]
            gym.seconds.append(time.perf_counter() - start)

        ways = {way.name: partial(way.compile, 1) for way in (plain, onnx, aot, shm)}
        ways |= {"gym": play}
        for i in range(rounds + 1):  # the first warms up
            for each in turns([*ways.values()], i):
                each()
    if gym.decisions != onnx.decisions:
        raise RuntimeError("expected the same actions in all ways, found others by gRPC")
    return figures([plain, onnx, aot, shm, gym], len(commands), len(onnx.decisions))


def figures(ways: list[Way], sessions: int, actions: int) -> dict[str, Any]:
    """The JSON."""
    outputs = {tuple(out.read_bytes() for out in way.outputs) for way in ways[1:]}
    rows = []
    for way in ways:
        ms = [seconds / sessions * 1e3 for seconds in way.seconds[1:]]
        over = [(a - b) / actions * 1e6 for a, b in zip(way.seconds[1:], ways[0].seconds[1:], strict=True)]  # fmt: skip
        ratio = median(a / b for a, b in zip(way.seconds[1:], ways[1].seconds[1:], strict=True))
        rows.append({"way": way.name, "ms": ms, "ratio_to_onnx": ratio, "us_over_plain": over})
    return {"sessions": sessions, "actions": actions, "outputs": len(outputs), "ways": rows}


def main() -> None:
    parser = options(__doc__, rounds=9)
    parser.add_argument("--serve", nargs=2, help=SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.rounds)
    about = {"machine": machine(("grpcio", "onnxruntime")), "rounds": given.rounds}
    report("session", about | found, given.json)


if __name__ == "__main__":
    main()

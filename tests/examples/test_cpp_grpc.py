"""examples/cpp/grpc_runner.cpp: grpc:// of C++, without Python in the compiler."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.grpc import ANY
from support.processes import free_port

from shmbridge import Host

ROOT = Path(__file__).parents[2]


def output(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory):
    """preloaded(program, *arguments): what it prints with the runner kind and without Python."""
    plugin, folder = shutil.which("grpc_cpp_plugin"), tmp_path_factory.mktemp("grpc")
    if not plugin or not Path("/usr/include/grpcpp").exists():
        pytest.skip("no libgrpc++-dev and protobuf-compiler-grpc")
    its = output("pkg-config", "--cflags", "--libs", "grpc++", "protobuf").split()
    made = [f"--cpp_out={folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"]
    output(str(Path(plugin).with_name("protoc")), f"-I{ROOT}/schemas", *made, "bridge.proto")
    ours = output("shmbridge", "config", "--cflags", "--libs").split()
    words = ["c++", "-std=c++17", "-Wall", "-Wextra", "-fPIC", "-shared", f"-I{folder}"]
    sources = [ROOT / "examples/cpp/grpc_runner.cpp", *folder.glob("*.cc")]
    output(*words, *sources, *its, *ours, "-o", folder / "grpc_runner.so")
    env = os.environ | {"LD_PRELOAD": f"{folder}/grpc_runner.so", "SHMBRIDGE_PYTHON": "/none"}
    return lambda *command: output(*command, env=env)


@pytest.mark.usefixtures("no_bridges")
def test_cpp_asks_a_grpc_host_as_it_asks_shm(preloaded, examples, c_program, new_name):
    ask, source, seen = c_program(examples / "cpp/ask.cpp"), examples / "c/ask.c", []

    def model(request):
        seen.append((request["function"], *request["features"]))
        return int(request["features"][0] < 9)

    for url, run in ((new_name(), output), (ANY, preloaded)):
        with Host(url) as host, host.start(model):
            seen.append(run(ask, host.url, source))
    half = len(seen) // 2
    assert half > 5 and seen[:half] == seen[half:]
    assert preloaded(ask, host.url, source).count("\n") > 5  # the heuristic answers


@pytest.mark.usefixtures("no_bridges")
def test_cpp_serves_a_trainer(preloaded, examples, c_program):
    program, address = c_program(examples / "cpp/environment.cpp"), f"127.0.0.1:{free_port()}"
    with (
        Host(f"grpc://{address}?role=client") as host,
        host.start(
            lambda request: int(3 if request["state"][0] else request["state"].argmax() % 3)
        ),
    ):
        said = preloaded(program, f"grpc://{address}?role=server&connect_timeout=60", "4")
    assert "0: stop (40 instructions" in said and "3: " in said

"""A compiler on another machine: two network namespaces with a cable between, the model in one, a
relay and a compiler in C in the other. Killed workers, trainers and relays are in tests/remote and
tests/hosts/test_relay.py; here the cable is cut."""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time

import pytest

from shmbridge import UnsupportedError
from shmbridge._urls import plugins

try:
    plugins.find("hosts", "grpc", "there is no host for grpc")
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

BOUND = 20  # seconds for what takes one or two
MODEL = """
    import sys
    import shmbridge
    def model(request):
        return int(request["x"])
    with shmbridge.Host(sys.argv[1]) as host:
        print(host.url, flush=True)
        host.serve(model)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=BOUND)


class Machines:
    """Two network namespaces, "trainer" and "worker", with a cable between; all that was started in
    them ends with them."""

    def __init__(self):
        self.names = [f"shmb-{os.getpid()}-{side}" for side in "tw"]
        self.ends = [f"shmb{os.getpid() % 100000}{side}" for side in "tw"]
        self.address = "10.231.7.1:50051"
        self.started = []

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            here, there = (
                [end, "netns", name] for end, name in zip(self.ends, self.names, strict=True)
            )
            ip("link", "add", *here, "type", "veth", "peer", "name", *there)
            for i, (name, end) in enumerate(zip(self.names, self.ends, strict=True), 1):
                ip("-n", name, "address", "add", f"10.231.7.{i}/24", "dev", end)
                self.cable("up", i - 1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.kill()
            process.communicate()
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)

    def cable(self, state, side=0):
        ip("-n", self.names[side], "link", "set", self.ends[side], state)

    def start(self, side, *command):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.started.append(
            subprocess.Popen(["ip", "netns", "exec", self.names[side], *map(str, command)], **pipes)
        )
        return self.started[-1]  # which has become the command itself

    def trainer(self):
        program = [sys.executable, "-P", "-c", textwrap.dedent(MODEL)]
        process = self.start(0, *program, f"grpc://{self.address}")
        assert process.stdout.readline().strip() == f"grpc://{self.address}"

    def relay(self, name):
        command = [sys.executable, "-P", "-m", "shmbridge.cli", "relay", f"shm://{name}"]
        process = self.start(1, *command, f"grpc://{self.address}?keepalive=1")
        assert process.stdout.readline().startswith(
            f"relaying shm://{name} to grpc://{self.address}"
        )
        return process


@pytest.fixture
def machines():
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("needs root and the command ip")
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Machines())
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces: {error.stderr.strip()}")
        yield made


class Compiler:
    """scripted_runner in the worker's namespace."""

    def __init__(self, machines, program, name):
        self.process = machines.start(1, program)
        assert self.do("open", f"shm://{name}").startswith("0")

    def do(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.process.stdout.readline().strip()

    def ask(self, x):
        """(status, the rest)"""
        self.do("feature", "x", 5, 0, struct.pack("<q", x).hex())
        status, _, rest = self.do("i64").partition(" ")
        return int(status), rest

    def until_answered(self, x):
        end = time.monotonic() + BOUND
        while (found := self.ask(x))[0]:
            assert found[0] in GONE, found
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found


GONE = (3, 4, 9, 11, 12)  # NO_HOST, BUSY, HOST_GONE, CLOSED, TIMEOUT


@pytest.fixture
def joined(machines, scripted_runner, name):
    """A compiler that has got an answer through a relay."""
    machines.trainer()
    relay = machines.relay(name)
    compiler = Compiler(machines, scripted_runner, name)
    assert compiler.ask(5) == (0, "5")
    yield compiler
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(BOUND) == 0


@pytest.mark.usefixtures("no_bridges")
def test_a_cut_cable_is_said_and_a_mended_one_used(machines, joined):
    machines.cable("down")
    for x in 1, 2:
        assert joined.ask(x)[0] in GONE
    machines.cable("up")
    assert joined.until_answered(8) == (0, "8")

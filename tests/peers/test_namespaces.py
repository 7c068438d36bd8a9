"""A compiler on another machine: two network namespaces with a cable between, the model in one, a
relay and compilers in C in the other. Worker, trainer, relay and cable are cut in turn: each ends
what is under way in bounded time, and things go on."""

import contextlib
import itertools
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from shmbridge import UnsupportedError
from shmbridge._bridge import segment
from shmbridge._urls import plugins

try:
    plugins.find("hosts", "grpc")
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

BOUND = 20  # seconds for what takes one or two
MODEL = """
    import sys
    import shmbridge
    def model(request):
        if request["x"] < 0:
            print("asked", flush=True)
            sys.stdin.readline()
        return int(request["x"])
    with shmbridge.Host(sys.argv[1]) as host:
        print(host.url, flush=True)
        host.serve(model)
"""
cables = itertools.count(1)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=BOUND)


@pytest.fixture(autouse=True)
def no_bridges():
    """What killed hosts leave is removed at the end, as `shmbridge gc` does."""
    yield
    segment.gc()


class Machines:
    """Two network namespaces, "trainer" and "worker", with a cable between; all that was started in
    them ends with them."""

    def __init__(self):
        number = next(cables)
        self.names = [f"shmb-{os.getpid()}-{number}-{side}" for side in "tw"]
        self.ends = [f"shmb{os.getpid() % 100000}{side}{number}" for side in "tw"]
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
        process = self.start(
            0, sys.executable, "-P", "-c", textwrap.dedent(MODEL), f"grpc://{self.address}"
        )
        assert process.stdout.readline().strip() == f"grpc://{self.address}"
        return process

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

    def begin(self, x):
        self.do("feature", "x", 5, 0, struct.pack("<q", x).hex())
        self.process.stdin.write("i64\n")

    def ask(self, x):
        """(status, the rest)"""
        self.begin(x)
        status, _, rest = self.process.stdout.readline().strip().partition(" ")
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
    """(trainer, relay, compiler), which have exchanged a question."""
    trainer, relay = machines.trainer(), machines.relay(name)
    compiler = Compiler(machines, scripted_runner, name)
    assert compiler.ask(5) == (0, "5")
    yield trainer, relay, compiler
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(BOUND) == 0


@contextlib.contextmanager
def took(what):
    begin = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begin:.2f} s")  # pytest -rP


def test_a_killed_worker_makes_room_for_the_next(machines, joined, scripted_runner, name):
    trainer, _, worker = joined
    worker.begin(-1)
    assert trainer.stdout.readline().strip() == "asked"
    worker.process.kill()
    trainer.stdin.write("\n")
    with took("worker killed in mid-question, the next one answered"):
        assert Compiler(machines, scripted_runner, name).until_answered(6) == (0, "6")


def test_a_killed_trainer_is_said_and_the_next_one_found(machines, joined):
    trainer, _, compiler = joined

    def kill():
        trainer.stdout.readline()
        trainer.kill()

    threading.Thread(target=kill).start()
    with took("trainer killed in mid-question, until the compiler knows"):
        assert compiler.ask(-1)[0] in GONE
    with took("a question while there is no trainer"):
        assert compiler.ask(1)[0] in GONE
    machines.trainer()
    with took("a new trainer, until it answers"):
        assert compiler.until_answered(7) == (0, "7")


def test_a_cut_cable_is_said_and_a_mended_one_used(machines, joined):
    _, _, compiler = joined
    machines.cable("down")
    with took("cable cut, until the compiler knows"):
        assert compiler.ask(1)[0] in GONE
    with took("a question without a cable"):
        assert compiler.ask(2)[0] in GONE
    machines.cable("up")
    with took("cable mended, until the trainer answers"):
        assert compiler.until_answered(8) == (0, "8")


def test_a_killed_relay_is_said_and_the_next_one_found(machines, joined, scripted_runner, name):
    trainer, relay, compiler = joined

    def kill():
        trainer.stdout.readline()
        relay.kill()
        trainer.stdin.write("\n")

    threading.Thread(target=kill).start()
    with took("relay killed in mid-question, until the compiler knows"):
        assert compiler.ask(-1)[0] == 9
    relay.wait()
    with took("a new relay, until the trainer answers"):
        other = machines.relay(name)
        assert compiler.do("open", f"shm://{name}").startswith("0")
        assert compiler.until_answered(9) == (0, "9")
    compiler.process.kill()
    other.send_signal(signal.SIGTERM)
    assert other.wait(BOUND) == 0
    relay.returncode = 0  # of the fixture's end, which this one has had
    relay.send_signal = lambda _: None

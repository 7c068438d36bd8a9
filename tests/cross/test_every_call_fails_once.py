"""Each allocation and each system call of our code fails once: a build goes on, Python gets an
error with a text, and nothing is left. tests/c/test_every_call_fails_once.c is the C core's."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import printed
from support.run import SHMBRIDGE

MODULE = Path(__file__).parents[1] / "c" / "module_faults.c"
# It asks four times. As LLVM, it fails without a channel.
COMPILER = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char header[] =
    "{\"features\":[{\"name\":\"x\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},"
    "{\"name\":\"inlining_default\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}],"
    "\"advice\":{\"name\":\"inlining_decision\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}}\n"
    "{\"context\":\"main\"}\n";

int main(int argc, char **argv) {
    char path[256], question[64];
    const char *base = NULL;
    for (int i = 1; i < argc; i++)
        if ((base = strstr(argv[i], "channel-base="))) break;
    if (!base) return 0;
    snprintf(path, sizeof path, "%s.in", base + 13);
    int in = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s.out", base + 13);
    int out = in < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0 || write(out, header, sizeof header - 1) < 0) return 1;
    for (long long i = 0, features[2] = {0}, advice; i < 4; i++) {
        int n = sprintf(question, "{\"observation\":%lld}\n", i);
        memcpy(question + n, features, sizeof features);
        question[n + sizeof features] = '\n';
        if (write(out, question, n + sizeof features + 1) < 0) return 1;
        if (read(in, &advice, sizeof advice) != sizeof advice) return 1;
    }
    return close(in) || close(out);
}
"""
PYTHON = """
import ctypes, gc, os, sys, threading, time
import numpy as np
from shmbridge import Host, ShmbridgeError, connect

host_url, runner_url, name = sys.argv[1:]
faults = ctypes.CDLL(None)
faults.faults_end.restype = ctypes.c_char_p

def left():
    gc.collect()
    shm = [file for file in os.listdir("/dev/shm") if f"-{os.getpid()}-" in file or name in file]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(shm)

def more_is_left():  # gRPC closes its descriptors later
    for _ in range(100):
        if all(now <= once for now, once in zip(left(), before)):
            return False
        time.sleep(0.05)
    return True

def ask(errors):
    try:
        with connect(runner_url) as runner:
            for i in range(4):
                advice = runner.evaluate({"x": np.ones(4 << i), "names": ["a", "bc"]})
                assert advice["y"].sum() == 4 << i and advice["names"] == ["a", "bc"]
    except (ShmbridgeError, MemoryError, OSError) as error:
        errors.append(error)

def talk():
    errors = []
    asking = threading.Thread(target=ask, args=(errors,))
    try:
        with Host(host_url) as host:
            asking.start()
            while asking.is_alive():
                request = host.receive(0.01)
                if request is not None:
                    request.reply({"y": request["x"], "names": request["names"]})
    except (ShmbridgeError, MemoryError, OSError) as error:
        errors.append(error)
    if asking.ident:
        asking.join()
    return errors

assert talk() == []
before = left()
for n in range(1, 1000):
    faults.faults_from(ctypes.c_long(n))
    errors = talk()
    call = faults.faults_end()
    assert all(str(error) for error in errors), (call, errors)
    errors = None
    assert not more_is_left(), (call, before, left())
    if not call:
        break
print(n)
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """The library to preload."""
    library = tmp_path_factory.mktemp("calls") / "faults.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", MODULE, "-o", library, "-ldl"]
    subprocess.run(words, check=True)
    return library


@pytest.fixture
def compiler(tmp_path):
    (tmp_path / "compiler.c").write_text(COMPILER)
    subprocess.run(["cc", tmp_path / "compiler.c", "-o", tmp_path / "clang"], check=True)
    return tmp_path / "clang"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("program", ["shmbridge", "clang", "--pipes"])
def test_a_build_goes_on(
    program, compiler, faults, serve, name, tmp_path, nothing_is_left, request
):
    words = [SHMBRIDGE, "run", "--llvm", "inline", "--connect", name, "--", compiler, "-c", "x.c"]
    if program == "--pipes":  # Python serves them
        if not request.config.getoption("--long"):
            pytest.skip("--long: Python starts for each call")
        words[2:2], program = ["--pipes"], Path(sys.executable).name
    failed = tmp_path / "failed"
    with serve(lambda request: 1, channels=2):
        for n in itertools.count(1):
            variables = {"SHMBRIDGE_FAULT": str(n), "SHMBRIDGE_FAULT_PROGRAM": program}
            variables |= {"SHMBRIDGE_FAULT_LOG": str(failed), "LD_PRELOAD": str(faults)}
            variables |= {"XDG_RUNTIME_DIR": str(tmp_path / f"{n}")}  # each is a build
            failed.write_text("")
            done = printed(words, env=os.environ | variables)
            assert done.returncode == 0, (n, failed.read_text(), done)
            if failed.read_text() == "pipe2":
                assert "Too many open files" in done.stderr
            if not failed.read_text():
                break
    assert n > 20


@pytest.mark.parametrize("scheme", ["shm", "pipe", "grpc"])
def test_python_gets_an_error_with_a_text(scheme, faults, name, python, tmp_path, request):
    if scheme == "grpc" and not request.config.getoption("--long"):
        pytest.skip("--long: a server for each call")
    urls = {
        "shm": (name, name),
        "pipe": (f"pipe://{tmp_path}/p?serdes=flatbuffers",) * 2,
        "grpc": (f"grpc://unix:{tmp_path}/s", f"grpc://unix:{tmp_path}/s?connect_timeout=5"),
    }
    done = python(PYTHON, *urls[scheme], name, env=os.environ | {"LD_PRELOAD": str(faults)})
    status, said = done.end()
    assert (status, int(said or 0) > 20) == (0, True), said

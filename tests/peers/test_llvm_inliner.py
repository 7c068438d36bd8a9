"""An unmodified clang and opt ask a Python policy where to inline, through examples/llvm/inliner,
on a program of 700 calls.

Each test runs with LLVM 22 and 19, where they are installed (Debian: clang-22 llvm-22-dev cmake
g++).
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.processes import free_port

from shmbridge.logs import TrainingLog

ROOT = Path(__file__).parents[2]
INLINER = ROOT / "examples/llvm/inliner"
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
NAME = f"inliner-{os.getpid()}"
FEATURES = 38
COPIES = 50

pytestmark = pytest.mark.slow

# The opposite of the example's policy, which decides as LLVM about the program. May fail a request.
MODEL = """
from policy import advise

requests = 0

def model(request):
    global requests
    requests += 1
    if requests == {raise_at}:
        raise ValueError("no idea")
    return 1 - advise(request)
"""

# Calls to inline, and to leave.
FUNCTIONS = """
static unsigned small@(unsigned x) { return x * 3 + @; }
static unsigned large@(unsigned x) {
    unsigned sum = 0;
    for (unsigned i = 0; i < x; i++) {
        if (i & 1) sum += small@(i) * i;
        else sum ^= i * x;
        if (sum > 1000) sum -= small@(sum) / x;
        for (unsigned left = sum % 7; left > 3; left--) sum = sum * 5 + i;
    }
    return sum;
}
unsigned f@(unsigned x) { return small@(x); }
unsigned g@(unsigned x) { return large@(x) + small@(x); }
unsigned h@(unsigned x) { return large@(x * 2) - large@(3); }
unsigned k@(unsigned x) { return large@(x + 1) * large@(x); }
void say@(void) { printf("%u\\n", f@(9) + g@(9) + h@(9) + k@(9)); }
"""
CALLS = 14 * COPIES


def program(copies):
    functions = [FUNCTIONS.replace("@", str(i)) for i in range(copies)]
    says = " ".join(f"say{i}();" for i in range(copies))
    return "\n".join(["#include <stdio.h>", *functions, f"int main(void) {{ {says} }}"])


@dataclass
class Compiler:
    """One version of LLVM, with the plugin built for it, compiling one program."""

    version: int
    plugin: Path
    source: Path

    def command(self, out, *options):
        clang = [f"clang-{self.version}", "-Oz", "-c", str(self.source)]
        return [*clang, "-o", str(out), *options]

    def compile(self, out, url=f"shm://{NAME}", **more):
        """With the plugin. Returns what it wrote to stderr."""
        command = self.command(out, f"-fpass-plugin={self.plugin}")
        env = os.environ | {"SHMBRIDGE_URL": url} | more
        done = subprocess.run(command, check=False, env=env, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def says(self, compiled):
        """What the program compiled to that object prints."""
        program = compiled.with_suffix(".program")
        subprocess.run([f"clang-{self.version}", compiled, "-o", program], check=True)
        return output(str(program))


@pytest.fixture(scope="module", params=[22, 19], ids=["llvm22", "llvm19"])
def compiler(request, tmp_path_factory, build_environment):
    version = request.param
    for tool in (f"clang-{version}", f"opt-{version}", f"llvm-config-{version}", "cmake", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}: apt-get install clang-{version} llvm-{version}-dev cmake g++")
    llvm = output(f"llvm-config-{version}", "--cmakedir")
    if not Path(llvm, "LLVMConfig.cmake").exists():
        pytest.skip(f"no {llvm}/LLVMConfig.cmake: apt-get install llvm-{version}-dev")
    build = tmp_path_factory.mktemp(f"plugin{version}")
    shmbridge = output(SHMBRIDGE, "config", "--cmakedir")
    packages = [f"-DLLVM_DIR={llvm}", f"-Dshmbridge_DIR={shmbridge}"]
    env = os.environ | build_environment
    subprocess.run(["cmake", "-S", INLINER, "-B", build, *packages], check=True, env=env)
    subprocess.run(["cmake", "--build", build], check=True, env=env)
    source = build / "program.c"
    source.write_text(program(COPIES))
    return Compiler(version, build / "shmbridge-inliner.so", source)


# What is not about the plugin's build is shown with one LLVM.
one_llvm = pytest.mark.parametrize("compiler", [22], ids=["llvm22"], indirect=True)


def plain(compiler, out):
    """What -Oz makes of the program without the plugin."""
    subprocess.run(compiler.command(out), check=True)
    return out.read_bytes()


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextmanager
def serving(folder, raise_at=0):
    """A host in another process, for as long as the block runs. Yields the log that it leaves."""
    (folder / "judge.py").write_text(MODEL.format(raise_at=raise_at))
    log = folder / "host.log"
    serve = [SHMBRIDGE, "serve", NAME, "--python", "judge:model", "--record", str(log)]
    path = {"PYTHONPATH": str(INLINER), "PYTHONUNBUFFERED": "1"}
    host = subprocess.Popen(
        serve, cwd=folder, env=os.environ | path, stdout=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    with host.stdout:
        assert NAME in host.stdout.readline()
        yield log
        host.terminate()
        host.stdout.read()
    assert host.wait() == 0


def counted(stderr):
    """From the only warning: how many call sites took the default advice, of how many."""
    counts = re.findall(
        r"shmbridge: warning: (\d+) of (\d+) call sites took LLVM's default advice", stderr
    )
    assert len(counts) == 1, stderr
    return int(counts[0][0]), int(counts[0][1])


@one_llvm
def test_policy_changes_the_object_but_not_what_the_program_does(compiler, tmp_path):
    out = tmp_path / "out.o"
    with serving(tmp_path) as log:
        assert compiler.compile(out) == ""
    assert out.read_bytes() != plain(compiler, tmp_path / "plain.o")
    assert compiler.says(out) == compiler.says(tmp_path / "plain.o")
    asked = list(TrainingLog(log))
    assert len(asked) > 200  # LLVM stops asking where a program has grown too much
    assert all(len(decision.features) == FEATURES for decision in asked)
    assert {int(decision.advice["advice"]) for decision in asked} == {0, 1}


@one_llvm
def test_without_a_host_the_object_is_the_plain_one(compiler, tmp_path):
    out = tmp_path / "out.o"
    defaulted, sites = counted(compiler.compile(out))
    assert defaulted == sites >= CALLS
    assert out.read_bytes() == plain(compiler, tmp_path / "plain.o")


def test_model_that_raises_leaves_the_rest_to_the_default(compiler, tmp_path):
    with serving(tmp_path, raise_at=3) as log:
        stderr = compiler.compile(tmp_path / "out.o")
    defaulted, sites = counted(stderr)
    assert sites - defaulted == 2
    assert "ValueError: no idea" in stderr
    assert len(list(TrainingLog(log))) == 2


@contextmanager
def running(*command):
    """`shmbridge ...` for as long as the block runs, once it has said something."""
    process = subprocess.Popen([SHMBRIDGE, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline()
        yield
        process.terminate()
        process.stdout.read()
    assert process.wait() == 0


@one_llvm
def test_model_decides_the_same_wherever_a_url_puts_it(compiler, tmp_path, embedding):
    for package in ("onnx", "onnxruntime", "emx_onnx_cgen", "grpc"):
        pytest.importorskip(package, reason="pip install 'shmbridge[bench]'")
    compiler = replace(compiler, source=tmp_path / "small.c")
    compiler.source.write_text(program(1))
    model, library = tmp_path / "inliner.onnx", tmp_path / "inliner.so"
    subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
    subprocess.run([SHMBRIDGE, "compile", model, "-o", library], check=True)
    remote = f"grpc://127.0.0.1:{free_port()}"
    urls = [
        f"shm://{NAME}",
        f"shm://{NAME}-relay",
        f"onnx://{model}",
        f"aot://{library}",
        f"python://policy:advise?path={INLINER}",
    ]
    out, objects = tmp_path / "out.o", set()
    with (
        running("serve", NAME, "--onnx", str(model)),
        running("serve", remote, "--onnx", str(model)),
        running("relay", f"shm://{NAME}-relay", remote),
    ):
        for url in urls:
            assert compiler.compile(out, url, SHMBRIDGE_PYTHON=str(embedding)) == ""
            objects.add(out.read_bytes())
    assert len(objects) == 1

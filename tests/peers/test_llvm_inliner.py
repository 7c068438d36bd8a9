"""An unmodified clang and opt ask a Python policy where to inline, through examples/llvm/inliner,
on zstd's 50,000 lines.

Each test runs with LLVM 22 and 19, where they are installed (Debian: clang-22 llvm-22-dev cmake
g++).
"""

import json
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
INLINER = ROOT / "examples/llvm/inliner"
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
NAME = f"inliner-{os.getpid()}"
FEATURES = 38
CALLS = 3000
# zstd with its fastest strategy alone compiles in two thirds of the time.
STRATEGIES = ["DFAST", "GREEDY", "LAZY", "LAZY2", "BTLAZY2", "BTOPT", "BTULTRA"]
FASTEST = [f"-DZSTD_EXCLUDE_{name}_BLOCK_COMPRESSOR" for name in STRATEGIES]

pytestmark = pytest.mark.slow

# The example's policy, which may kill its host at one request, or fail one.
MODEL = """
import os, signal
from policy import advise

requests = 0

def model(request):
    global requests
    requests += 1
    if requests == {kill_at}:
        os.kill(os.getpid(), signal.SIGKILL)
    if requests == {raise_at}:
        raise ValueError("no idea")
    return advise(request)
"""

ROUND_TRIP = """
#include <string.h>
#include "zstd.h"

int main(void) {
    static char text[100000], packed[ZSTD_COMPRESSBOUND(sizeof text)], back[sizeof text];
    for (unsigned i = 0; i < sizeof text; i++) text[i] = (char)(i * i >> 7);
    for (int level = 1; level <= 19; level += 6) {
        size_t n = ZSTD_compress(packed, sizeof packed, text, sizeof text, level);
        if (ZSTD_isError(n) || n >= sizeof text) return 1;
        if (ZSTD_decompress(back, sizeof back, packed, n) != sizeof text ||
            memcmp(text, back, sizeof text)) return 2;
    }
    return 0;
}
"""


# Calls to inline, and to leave.
SMALL = """
static int small(int x) { return x * 3 + 1; }
static int large(int x) {
    int sum = 0;
    for (int i = 0; i < x; i++) {
        if (i & 1) sum += small(i) * i;
        else sum ^= i * x;
        if (sum > 1000) sum -= small(sum) / x;
        while (sum % 7 > 3) sum = sum * 5 + i;
    }
    return sum;
}
int f(int x) { return small(x); }
int g(int x) { return large(x) + small(x); }
int h(int x) { return large(x * 2) - large(3); }
int k(int x) { return large(x + 1) * large(x); }
"""


@pytest.fixture(scope="session")
def zstd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """zstd.c, all of it in one file, and zstd.h, as PyPI's zstandard ships them."""
    fetch_zstd = runpy.run_path(str(ROOT / "bench/sources.py"))["fetch_zstd"]
    try:
        return fetch_zstd(tmp_path_factory.mktemp("zstd"))
    except subprocess.CalledProcessError:
        pytest.skip("pip cannot download the sdist of zstandard, the program to compile")


@dataclass
class Compiler:
    """One version of LLVM, with the plugin built for it, compiling one program."""

    version: int
    plugin: Path
    source: Path

    def command(self, out: Path, *options: str) -> list[str]:
        clang = [f"clang-{self.version}", "-Oz", *FASTEST]
        return [*clang, "-c", str(self.source), "-o", str(out), *options]

    def compile(self, out: Path, log: Path | None = None) -> str:
        """With the plugin. Returns what it wrote to stderr."""
        command = self.command(out, f"-fpass-plugin={self.plugin}")
        done = subprocess.run(
            command, check=False, env=environment(log), stderr=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def works(self, compiled: Path) -> bool:
        """Does the program compiled to that object compress and decompress?"""
        main, program = compiled.with_suffix(".main.c"), compiled.with_suffix(".program")
        main.write_text(ROUND_TRIP)
        compiler = [f"clang-{self.version}", f"-I{self.source.parent}"]
        subprocess.run([*compiler, main, compiled, "-o", program], check=True)
        return subprocess.run([program], check=False).returncode == 0


@pytest.fixture(scope="module", params=[22, 19], ids=["llvm22", "llvm19"])
def compiler(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zstd: Path
) -> Compiler:
    version: int = request.param
    for tool in (f"clang-{version}", f"opt-{version}", f"llvm-config-{version}", "cmake", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}: apt-get install clang-{version} llvm-{version}-dev cmake g++")
    llvm = output(f"llvm-config-{version}", "--cmakedir")
    if not Path(llvm, "LLVMConfig.cmake").exists():
        pytest.skip(f"no {llvm}/LLVMConfig.cmake: apt-get install llvm-{version}-dev")
    build = tmp_path_factory.mktemp(f"plugin{version}")
    shmbridge = output(SHMBRIDGE, "config", "--cmakedir")
    packages = [f"-DLLVM_DIR={llvm}", f"-Dshmbridge_DIR={shmbridge}"]
    subprocess.run(["cmake", "-S", INLINER, "-B", build, *packages], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    return Compiler(version, build / "shmbridge-inliner.so", zstd)


# What is not about the plugin's build is shown with one LLVM.
one_llvm = pytest.mark.parametrize("compiler", [22], ids=["llvm22"], indirect=True)


@pytest.fixture
def many(compiler: Compiler, tmp_path: Path) -> Compiler:
    """It compiles a program with CALLS call sites, in a second."""
    source = tmp_path / "many.c"
    source.write_text(
        "".join(
            f"static int f{i}(int x) {{ return x; }} int g{i}(int x) {{ return f{i}(x); }}\n"
            for i in range(CALLS)
        )
    )
    return replace(compiler, source=source)


def plain(compiler: Compiler, out: Path) -> bytes:
    """What -Oz makes of the program without the plugin."""
    subprocess.run(compiler.command(out), check=True)
    return out.read_bytes()


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def environment(log: Path | None) -> dict[str, str]:
    return (
        os.environ
        | {"SHMBRIDGE_URL": f"shm://{NAME}"}
        | ({"SHMBRIDGE_INLINER_LOG": str(log)} if log else {})
    )


@contextmanager
def serving(folder: Path, kill_at: int = 0, raise_at: int = 0) -> Iterator[Path]:
    """A host in another process, for as long as the block runs. Yields its log."""
    (folder / "judge.py").write_text(MODEL.format(kill_at=kill_at, raise_at=raise_at))
    log = folder / "host.log"
    serve = [SHMBRIDGE, "serve", NAME, "--python", "judge:model", "--log", str(log)]
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
    assert host.wait() == (-signal.SIGKILL if kill_at else 0)


def decisions(log: Path) -> list[dict[str, dict[str, Any]]]:
    """The features and advice of each, without the host's time stamps and without the failures."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        {key: entry[key] for key in ("features", "advice")}
        for entry in entries
        if "advice" in entry
    ]


def counted(stderr: str) -> tuple[int, int]:
    """From the only warning: how many call sites took the default advice, of how many."""
    counts = re.findall(
        r"shmbridge: warning: (\d+) of (\d+) call sites took LLVM's default advice", stderr
    )
    assert len(counts) == 1, stderr
    return int(counts[0][0]), int(counts[0][1])


@one_llvm
def test_policy_changes_the_object_and_both_logs_agree(compiler: Compiler, tmp_path: Path) -> None:
    out, log = tmp_path / "zstd.o", tmp_path / "compiler.log"
    with serving(tmp_path) as answered:
        assert compiler.compile(out, log) == ""
    assert out.read_bytes() != plain(compiler, tmp_path / "plain.o")
    assert compiler.works(out)
    asked = decisions(log)
    assert asked == decisions(answered)
    assert len(asked) > 5000
    assert all(len(decision["features"]) == FEATURES for decision in asked)
    assert {decision["advice"]["advice"] for decision in asked} == {0, 1}


@one_llvm
def test_one_host_serves_several_compilers_at_once(many: Compiler, tmp_path: Path) -> None:
    outs = [tmp_path / f"{i}.o" for i in range(2)]
    logs = [out.with_suffix(".log") for out in outs]
    with serving(tmp_path) as answered:
        running = [
            subprocess.Popen(
                many.command(out, f"-fpass-plugin={many.plugin}"), env=environment(log)
            )
            for out, log in zip(outs, logs, strict=True)
        ]
        assert [process.wait() for process in running] == [0, 0]
    assert outs[0].read_bytes() == outs[1].read_bytes()
    asked = decisions(logs[0])
    assert len(asked) == CALLS
    assert asked == decisions(logs[1])
    assert Counter(map(str, decisions(answered))) == Counter(map(str, 2 * asked))


@one_llvm
def test_without_a_host_the_object_is_the_plain_one(many: Compiler, tmp_path: Path) -> None:
    out = tmp_path / "many.o"
    assert counted(many.compile(out)) == (CALLS, CALLS)
    assert out.read_bytes() == plain(many, tmp_path / "plain.o")


@one_llvm
def test_host_killed_in_mid_compilation_leaves_the_rest_to_the_default(
    compiler: Compiler, tmp_path: Path
) -> None:
    out, log = tmp_path / "zstd.o", tmp_path / "compiler.log"
    with serving(tmp_path, kill_at=1001) as answered:
        defaulted, sites = counted(compiler.compile(out, log))
    assert sites - defaulted == 1000
    assert defaulted > 4000
    assert decisions(log) == decisions(answered)
    assert compiler.works(out)


def test_model_that_raises_leaves_the_rest_to_the_default(many: Compiler, tmp_path: Path) -> None:
    log = tmp_path / "compiler.log"
    with serving(tmp_path, raise_at=3) as answered:
        stderr = many.compile(tmp_path / "many.o", log)
    assert counted(stderr) == (CALLS - 2, CALLS)
    assert "ValueError: no idea" in stderr
    assert len(decisions(log)) == 2
    assert decisions(log) == decisions(answered)


@one_llvm
def test_opt_asks_too(many: Compiler, tmp_path: Path) -> None:
    bitcode, out, log = tmp_path / "many.bc", tmp_path / "out.bc", tmp_path / "opt.log"
    subprocess.run(
        many.command(bitcode, "-emit-llvm", "-Xclang", "-disable-llvm-passes"), check=True
    )
    opt = [f"opt-{many.version}", f"-load-pass-plugin={many.plugin}", "-passes=default<Oz>"]
    with serving(tmp_path) as answered:
        subprocess.run([*opt, bitcode, "-o", out], env=environment(log), check=True)
    assert len(decisions(log)) == CALLS
    assert decisions(log) == decisions(answered)
    assert out.read_bytes().startswith(b"BC\xc0\xde")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(*command: str) -> Iterator[None]:
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
def test_model_decides_the_same_wherever_a_url_puts_it(
    compiler: Compiler, tmp_path: Path, embedding: Path
) -> None:
    for package in ("onnx", "onnxruntime", "emx_onnx_cgen", "grpc"):
        pytest.importorskip(package, reason="pip install 'shmbridge[bench]'")
    source, model, library = (
        tmp_path / "small.c",
        tmp_path / "inliner.onnx",
        tmp_path / "inliner.so",
    )
    source.write_text(SMALL)
    subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
    subprocess.run([SHMBRIDGE, "compile", model, "-o", library], check=True)
    remote, found = f"grpc://127.0.0.1:{free_port()}", {}
    urls = [
        f"shm://{NAME}",
        f"shm://{NAME}-relay",
        f"onnx://{model}",
        f"aot://{library}",
        f"python://policy:advise?path={INLINER}",
    ]
    out, command = (
        tmp_path / "small.o",
        replace(compiler, source=source).command(
            tmp_path / "small.o", f"-fpass-plugin={compiler.plugin}"
        ),
    )
    with (
        running("serve", NAME, "--onnx", str(model)),
        running("serve", remote, "--onnx", str(model)),
        running("relay", f"shm://{NAME}-relay", remote),
    ):
        for url in urls:
            log = tmp_path / f"{len(found)}.log"
            env = environment(log) | {
                "SHMBRIDGE_URL": url,
                "SHMBRIDGE_PYTHON_LIBRARY": str(embedding),
            }
            done = subprocess.run(command, check=True, env=env, stderr=subprocess.PIPE, text=True)
            assert done.stderr == ""
            found[url] = out.read_bytes(), decisions(log)
    objects, asked = zip(*found.values(), strict=True)
    assert objects[1:] == objects[:-1]
    values = [
        [(decision["features"], *decision["advice"].values()) for decision in one] for one in asked
    ]
    assert values[1:] == values[:-1]
    assert {advice for _, advice in values[0]} == {0, 1}

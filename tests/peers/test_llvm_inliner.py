"""An unmodified clang and opt ask a Python policy where to inline, through examples/llvm/inliner, on zstd's 50,000 lines.

Each test runs with LLVM 22 and 19, where they are installed (Debian: clang-22 llvm-22-dev cmake g++).
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

INLINER = Path(__file__).parents[2] / "examples" / "llvm" / "inliner"
NAME = f"inliner-{os.getpid()}"
FEATURES = 38

pytestmark = pytest.mark.slow

# argv: the bridge's name, the log of decisions, after how many requests the host is killed, which one raises.
HOST = """
import json, os, signal, sys
import policy, shmbridge

log = open(sys.argv[2], "w")
last, wrong = map(int, sys.argv[3:])
requests = 0

def model(request):
    global requests
    requests += 1
    if requests == wrong:
        raise ValueError("no idea")
    if requests == last + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    advice = policy.advise(request)
    print(json.dumps({name: request[name].item() for name in request} | {"advice": advice}), file=log, flush=True)
    return advice

with shmbridge.Host(sys.argv[1]) as host:
    print("ready", flush=True)
    host.serve(model)
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
        if (ZSTD_decompress(back, sizeof back, packed, n) != sizeof text || memcmp(text, back, sizeof text)) return 2;
    }
    return 0;
}
"""


@pytest.fixture(scope="session")
def zstd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """zstd.c, all of it in one file, and zstd.h, as PyPI's zstandard ships them."""
    folder = tmp_path_factory.mktemp("zstd")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    if subprocess.run([*pip, "zstandard==0.25.0"], check=False).returncode != 0:
        pytest.skip("pip cannot download the sdist of zstandard, the program to compile")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        sdist.extractall(folder, [m for m in sdist if "/zstd/" in m.name and m.isreg()])
    return next(folder.glob("*/zstd/zstd.c"))


@dataclass
class Compiler:
    """One version of LLVM, with the plugin built for it, compiling one program."""

    version: int
    plugin: Path
    source: Path

    def command(self, out: Path, *options: str) -> list[str]:
        return [f"clang-{self.version}", "-Oz", "-c", str(self.source), "-o", str(out), *options]

    def compile(self, out: Path, log: Path | None = None) -> str:
        """With the plugin. Returns what it wrote to stderr."""
        command = self.command(out, f"-fpass-plugin={self.plugin}")
        done = subprocess.run(command, check=False, env=environment(log), stderr=subprocess.PIPE, text=True)
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
def compiler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zstd: Path) -> Compiler:
    version: int = request.param
    for tool in (f"clang-{version}", f"opt-{version}", f"llvm-config-{version}", "cmake", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}: apt-get install clang-{version} llvm-{version}-dev cmake g++")
    llvm = output(f"llvm-config-{version}", "--cmakedir")
    if not Path(llvm, "LLVMConfig.cmake").exists():
        pytest.skip(f"no {llvm}/LLVMConfig.cmake: apt-get install llvm-{version}-dev")
    build = tmp_path_factory.mktemp(f"plugin{version}")
    shmbridge = output(os.path.join(sysconfig.get_path("scripts"), "shmbridge"), "config", "--cmakedir")
    packages = [f"-DLLVM_DIR={llvm}", f"-Dshmbridge_DIR={shmbridge}"]
    subprocess.run(["cmake", "-S", INLINER, "-B", build, *packages], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    return Compiler(version, build / "shmbridge-inliner.so", zstd)


@pytest.fixture(scope="module")
def plain(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What -Oz makes of the program without the plugin."""
    out = tmp_path_factory.mktemp("plain") / "plain.o"
    subprocess.run(compiler.command(out), check=True)
    return out


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def environment(log: Path | None) -> dict[str, str]:
    return os.environ | {"SHMBRIDGE_URL": f"shm://{NAME}"} | ({"SHMBRIDGE_INLINER_LOG": str(log)} if log else {})


@contextmanager
def hosting(log: Path, kill_after: int = -1, raise_at: int = 0) -> Iterator[None]:
    """A host in another process, for as long as the block runs."""
    arguments = [NAME, str(log), str(kill_after), str(raise_at)]
    host = subprocess.Popen([sys.executable, "-c", HOST, *arguments], cwd=INLINER, stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout is not None and host.stdout.readline() == "ready\n"
        yield
    finally:
        host.send_signal(signal.SIGINT)
        assert host.wait(20) == (0 if kill_after < 0 else -signal.SIGKILL)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def counted(stderr: str) -> tuple[int, int]:
    """From the only warning: how many call sites took the default advice, of how many."""
    counts = re.findall(r"shmbridge: warning: (\d+) of (\d+) call sites took LLVM's default advice", stderr)
    assert len(counts) == 1, stderr
    return int(counts[0][0]), int(counts[0][1])


def test_policy_changes_the_object_and_both_logs_agree(compiler: Compiler, plain: Path, tmp_path: Path) -> None:
    out, asked, answered = tmp_path / "zstd.o", tmp_path / "compiler.log", tmp_path / "host.log"
    with hosting(answered):
        stderr = compiler.compile(out, asked)
    assert stderr == ""
    assert out.read_bytes() != plain.read_bytes()
    assert compiler.works(out)
    assert lines(asked) == lines(answered)
    decisions = [json.loads(line) for line in lines(asked)]
    assert len(decisions) > 5000
    assert all(len(decision) == FEATURES + 1 for decision in decisions)
    assert {decision["advice"] for decision in decisions} == {0, 1}


def test_one_host_serves_several_compilers_at_once(compiler: Compiler, tmp_path: Path) -> None:
    outs = [tmp_path / f"{i}.o" for i in range(3)]
    logs = [out.with_suffix(".log") for out in outs]
    with hosting(tmp_path / "host.log"):
        running = [
            subprocess.Popen(compiler.command(out, f"-fpass-plugin={compiler.plugin}"), env=environment(log))
            for out, log in zip(outs, logs, strict=True)
        ]
        assert [process.wait() for process in running] == [0, 0, 0]
    assert outs[0].read_bytes() == outs[1].read_bytes() == outs[2].read_bytes()
    assert lines(logs[0]) == lines(logs[1]) == lines(logs[2])
    assert sorted(lines(tmp_path / "host.log")) == sorted(3 * lines(logs[0]))


def test_without_a_host_the_object_is_the_plain_one(compiler: Compiler, plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "zstd.o"
    defaulted, sites = counted(compiler.compile(out))
    assert defaulted == sites > 5000
    assert out.read_bytes() == plain.read_bytes()


def test_host_killed_in_mid_compilation_leaves_the_rest_to_the_default(compiler: Compiler, tmp_path: Path) -> None:
    out, asked, answered = tmp_path / "zstd.o", tmp_path / "compiler.log", tmp_path / "host.log"
    with hosting(answered, kill_after=1000):
        defaulted, sites = counted(compiler.compile(out, asked))
    assert sites - defaulted == 1000
    assert defaulted > 4000
    assert lines(asked) == lines(answered)
    assert compiler.works(out)


def test_model_that_raises_loses_only_that_site(compiler: Compiler, tmp_path: Path) -> None:
    source, asked, answered = tmp_path / "small.c", tmp_path / "compiler.log", tmp_path / "host.log"
    source.write_text(
        "".join(f"static int f{i}(int x) {{ return x; }} int g{i}(int x) {{ return f{i}(x); }}" for i in range(9))
    )
    with hosting(answered, raise_at=3):
        stderr = replace(compiler, source=source).compile(tmp_path / "small.o", asked)
    assert counted(stderr) == (1, 9)
    assert "ValueError: no idea" in stderr
    assert lines(asked) == lines(answered)
    assert len(lines(asked)) == 8


def test_opt_asks_too(compiler: Compiler, tmp_path: Path) -> None:
    bitcode, out = tmp_path / "zstd.bc", tmp_path / "out.bc"
    asked, answered = tmp_path / "opt.log", tmp_path / "host.log"
    subprocess.run(compiler.command(bitcode, "-emit-llvm", "-Xclang", "-disable-llvm-passes"), check=True)
    opt = [f"opt-{compiler.version}", f"-load-pass-plugin={compiler.plugin}", "-passes=default<Oz>"]
    with hosting(answered):
        subprocess.run([*opt, bitcode, "-o", out], env=environment(asked), check=True)
    assert len(lines(asked)) > 5000
    assert lines(asked) == lines(answered)
    assert out.read_bytes().startswith(b"BC\xc0\xde")

"""Real caches and launchers about `shmbridge run`: never an old policy's object. (Debian: ccache,
distcc.)"""

import os
import shutil
import subprocess

import pytest
from support.stock import SHMBRIDGE, SOURCES, environment, needs

pytestmark = pytest.mark.slow
RUN = f"{SHMBRIDGE} run --llvm inline --host mine:advise -- "


@pytest.fixture
def build(tmp_path):
    """build(advice, *launcher): the object that a launcher makes when the policy advises this, and
    stderr."""
    needs("clang-22", "ccache")
    (tmp_path / "masked").mkdir()
    (tmp_path / "masked" / "clang-22").symlink_to(shutil.which("ccache"))
    script = tmp_path / "clang-script"
    script.write_text(f'#!/bin/sh\n{RUN}clang-22 "$@"\n')
    script.chmod(0o755)
    more_variables = {}
    variables = os.environ | {"CCACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def go(advice, launcher, *more):
        (tmp_path / "mine.py").write_text(f"def advise(request):\n    return {advice}\n")
        command = [*launcher.split(), "-O2", "-c", str(SOURCES / "numbers.c"), "-o", "out.o", *more]
        subprocess.run(["ccache", "-z"], env=variables, stdout=-1, check=True)
        done = subprocess.run(
            command, cwd=tmp_path, env=variables | more_variables, stderr=-1, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return (tmp_path / "out.o").read_bytes(), done.stderr

    go.variables = more_variables
    return go


@pytest.mark.parametrize(
    "launcher",
    [
        *(f"{RUN}ccache clang-22", f"{RUN}masked/clang-22", f"ccache {RUN}clang-22"),
        "ccache ./clang-script",
    ],
)
def test_edited_policy_makes_another_object_whatever_ccache_keeps(launcher, build):
    made = [build(advice, launcher) for advice in (0, 1, 0)]
    assert [stderr for _, stderr in made] == ["", "", ""]
    assert made[0] == made[2] != made[1]


def test_cache_that_cannot_be_gone_round_is_told_of(build):
    build.variables["CCACHE_DEPEND"] = "1"
    assert "ccache before shmbridge run also reuses" in build(0, "ccache ./clang-script", "-MD")[1]


def test_distcc_sends_nothing_away(build):
    needs("distcc")
    build.variables["DISTCC_HOSTS"] = "no.such.machine"
    made = [build(advice, f"{RUN}distcc clang-22") for advice in (0, 1)]
    assert made[0] != made[1]


# ---- Compilers into which no library can be preloaded ----


STATIC = """
#include <unistd.h>
int main(int argc, char **argv) { unsetenv("LD_PRELOAD"); return execvp("clang-22", argv); }
"""


def in_folder(words, folder):
    """Runs a command there; what it says on stderr is kept."""
    own = {"cwd": folder, "env": environment(folder)}
    return subprocess.run(words, **own, stderr=subprocess.PIPE, text=True, timeout=60)


@pytest.fixture
def run_mine(tmp_path):
    """run_mine(policy, *command): compiles numbers.c to out.o; how that ended."""
    needs("clang-22")
    (tmp_path / "mine.py").write_text(
        "def inlines(request): return 1\ndef refuses(request): return 0\n"
    )

    def go(policy, *command, options=(), more=()):
        words = [SHMBRIDGE, "run", "-v", "--llvm", "inline", "--host", f"mine:{policy}", *options]
        source = ["-Oz", "-c", str(SOURCES / "numbers.c"), "-o", "out.o", *more]
        return in_folder([*words, "--", *command, *source], tmp_path)

    return go


@pytest.mark.parametrize("kind", ["script", "static"])
def test_compiler_that_cannot_preload_is_asked_through_pipes(kind, run_mine, tmp_path):
    clang = tmp_path / "clang"
    if kind == "script":
        clang.write_text('#!/bin/sh\nunset LD_PRELOAD\nexec clang-22 "$@"\n')
        clang.chmod(0o755)
    else:
        (tmp_path / "clang.c").write_text(STATIC)
        subprocess.run(
            ["cc", "-w", "-static", tmp_path / "clang.c", "-o", clang], check=True, cwd=tmp_path
        )
    made = []
    for policy in ("inlines", "refuses"):
        for compiler in (clang, "clang-22"):
            done = run_mine(policy, compiler)
            assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
            made.append((tmp_path / "out.o").read_bytes())
    assert made[0] == made[1] != made[2] == made[3]


def test_compiler_that_fails_without_the_library_runs_again_plainly(run_mine, tmp_path):
    """Its environment is scrubbed, so it finds no channel, and LLVM crashes."""
    done = run_mine(
        "inlines", "env", "-u", "LD_PRELOAD", "clang-22", more=["-fno-crash-diagnostics"]
    )
    assert (done.returncode, "try --pipes" in done.stderr) == (0, True), done.stderr
    piped = subprocess.run(
        ["clang-22", "-Oz", "-c", SOURCES / "numbers.c", "-o", tmp_path / "plain.o"]
    )
    assert piped.returncode == 0
    assert (tmp_path / "out.o").read_bytes() == (tmp_path / "plain.o").read_bytes()


def test_build_without_a_host_prints_one_warning(tmp_path):
    needs("clang-22", "make")
    objects = " ".join(f"{number}.o" for number in range(6))
    rule = (
        f".SUFFIXES:\n.PHONY: all\nall: {objects}\nMakefile:;\n%.o:\n"
        f"\t@$(CC) -O2 -c {SOURCES}/more.c -o $@\n"
    )
    (tmp_path / "Makefile").write_text(rule)
    for options in "--connect nobody-is-here", "--host mine:absent":
        launcher = f"{SHMBRIDGE} run --llvm inline {options} -- clang-22"
        for _ in range(2):  # two builds
            done = in_folder(["make", "-B", "-j2", f"CC={launcher}"], tmp_path)
            assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr

"""`shmbridge run` of unmodified compilers in whole builds."""

import os
import signal
import subprocess
from collections import Counter

import pytest
from support.processes import alive, printed, stat_of, until, words_of
from support.stock import ADVICE, ALL, SHMBRIDGE, SOURCES, environment, needs, run_words

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_the_policy_hangs_ends_the_compiler_and_the_run(number, transport, tmp_path):
    needs("clang-22")
    hangs = run_words("priority", "hangs", "--deadline", "0", *transport)
    link = ["clang-22", "-O2", SOURCES / "numbers.c", SOURCES / "main.c", "-o", tmp_path / "out"]
    running = subprocess.Popen([*hangs, *link], env=environment(tmp_path), start_new_session=True)

    def processes():
        every = filter(str.isdigit, os.listdir("/proc"))
        return [p for p in every if alive(p) and stat_of(p)[3:4] == [str(running.pid)]]

    until(lambda: any("-cc1" in words_of(pid) for pid in processes()))
    os.killpg(running.pid, number)
    assert running.wait(20) == -number
    until(lambda: not processes())


MAKEFILE = """
CFLAGS = -O2
COPIES = $(shell seq 12)
vpath %.c {sources}
program: main.o numbers.o | $(COPIES:%=numbers-%.o)
\t$(CC) -o $@ $^
numbers-%.o: numbers.c
\t$(CC) $(CFLAGS) -c -o $@ $<
"""


@pytest.mark.parametrize("transport", ["preload"], indirect=True)  # CMake's has both
def test_make_with_several_jobs_makes_a_program_that_works(transport, tmp_path):
    needs("clang-22", "make")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(sources=SOURCES))
    launcher = " ".join([*run_words(ALL, "advise", *transport), "clang-22"])
    make = ["make", "-j4", f"CC={launcher}"]
    done = printed(make, timeout=None, cwd=tmp_path, env=environment(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run([tmp_path / "program"], check=True)
    asked = Counter(
        line.split(" ")[0] for line in (tmp_path / "questions").read_text().splitlines()
    )
    assert asked.keys() == set(ADVICE.values())


CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(numbers C)
add_executable(program {sources}/main.c {sources}/numbers.c)
"""


def test_cmake_takes_the_run_as_a_launcher(transport, tmp_path):
    needs("clang-22", "cmake", "make")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(sources=SOURCES))
    launcher = ";".join(
        [SHMBRIDGE, "run", "--llvm", ALL, "--host", f"{SOURCES}/policy.py:advise", *transport, "--"]
    )
    options = [
        "-DCMAKE_C_COMPILER=clang-22",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}",
    ]
    env = os.environ | {"QUESTIONS": str(tmp_path / "questions")}
    for words in (
        ["-S", tmp_path, "-B", tmp_path / "b", "-G", "Unix Makefiles", *options],
        ["--build", tmp_path / "b"],
    ):
        done = printed(["cmake", *words], timeout=None, cwd="/", env=env)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
    subprocess.run([tmp_path / "b" / "program"], check=True, stdout=subprocess.DEVNULL)
    asked = Counter(
        line.split(" ")[0] for line in (tmp_path / "questions").read_text().splitlines()
    )
    assert asked.keys() == set(ADVICE.values())

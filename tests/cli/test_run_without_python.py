"""`shmbridge run --connect` does without Python what Python does."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
from support.run import CONNECT, PYTHON, SHMBRIDGE

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def both(compiler, tmp_path):
    """both(*options, program=a compiler that tells its arguments and environment, behind=(), **Popen's): what the run said and
    how it ended, when the command did it, and when Python did."""

    def one(run, words, **more):
        done = subprocess.run(
            [run, "run", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, **more
        )
        out = re.sub(r"/shmbridge-\d+-[0-9a-f]+|/proc/\d+/fd/\d+", "/X", done.stdout)
        return (
            done.returncode,
            sorted(out.splitlines()),
            re.sub("shmbridge-python", "shmbridge", done.stderr),
        )

    def go(*words, program=None, behind=(), **more):
        program = program or compiler('printf "%s\\n" "$@"; env')
        return [one(run, [*words, "--", program, *behind], **more) for run in (SHMBRIDGE, PYTHON)]

    return go


@pytest.mark.parametrize(
    "options",
    [
        "--llvm inline --connect b",
        "--llvm=priority,evict --connect=b?wait=spin -v",
        "--llvm evict,inline,priority --llvm inline --connect a --connect shm://b?deadline=3 --strict",
        "--llvm inline --connect b?deadlines=1 --deadline 0.25 --verbose",
        "--llvm inline --connect grpc://h:1 --deadline 0",
    ],
)
def test_compiler_gets_the_same_words_and_environment_without_python(options, both):
    native, python = both(
        *options.split(),
        behind=["-O2", "-c", "a b.c", "--", ""],
        env=os.environ | {"LD_PRELOAD": "libc.so.6"},
    )
    assert native == python
    assert "SHMBRIDGE_LLVM_BASE=/tmp/X" in native[1]


@pytest.mark.parametrize(
    ("options", "behind"),
    [
        ("--llvm inline --connect b --default inline=1", ""),
        ("--llvm inline,inline --connect b", ""),
        ("--llvm evict --connect b --limit 0", ""),
        ("--llvm inline --connect b", "-flto=thin x.o"),
        ("--llvm inline --connect b", "@words"),
        ("--llvm inline --connect b", "-cc1 x.c"),
        ("--llvm unroll --connect b", ""),
        ("--llvm inline --connect b --deadline -1", ""),
        ("--llvm inline --connect b --deadline", ""),
        ("--llvm inline --connect", ""),
        ("--llvm", ""),
        ("--connect b", ""),
        ("--help", ""),
    ],
)
def test_what_is_not_done_without_python_is_as_with_it(options, behind, both, tmp_path):
    (tmp_path / "words").write_text("-flto")
    native, python = both(*options.split(), behind=behind.split())
    assert native == python


@pytest.mark.parametrize("strict", [[], ["--strict"]])
@pytest.mark.parametrize("status", [0, 3])
def test_defaults_are_counted_in_the_same_words_without_python(strict, status, both, compiler):
    lines = ["inline 5 0 0 ", "evict 7 2 9 it  hangs", "evict 1 1 9 other", "no line"]
    script = "; ".join(f"echo '{line}' >> $SHMBRIDGE_LLVM_REPORT" for line in lines[:3])
    options = ["--llvm", "inline,evict,priority", "--connect", "b", *strict]
    for verbose in [], ["-v"]:
        native, python = both(*options, *verbose, program=compiler(f"{script}; exit {status}"))
        assert native == python
        assert (native[0], "3 of 13" in native[2]) == (status or bool(strict), True)


@pytest.mark.parametrize("signal_name", ["HUP", "INT", "TERM"])
def test_signal_that_is_ignored_stays_ignored_without_python(signal_name, both, compiler):
    program = compiler(f"kill -{signal_name} $PPID; kill -{signal_name} $$; sleep 0.1; exit 4")
    for run in SHMBRIDGE, PYTHON:
        words = shlex.join([run, "run", "--llvm", "inline", *CONNECT, "--", str(program)])
        assert (
            subprocess.run(["sh", "-c", f"trap '' {signal_name}; {words}"], timeout=60).returncode
            == 4
        )


def test_killed_run_takes_the_compiler_along_without_python(compiler):
    words = [
        SHMBRIDGE,
        "run",
        "--llvm",
        "inline",
        *CONNECT,
        "--",
        compiler("echo ready; exec sleep 1000"),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # nobody has it any more


def test_command_without_its_library_beside_it_leaves_the_run_to_python(compiler, tmp_path):
    shutil.copy(SHMBRIDGE, tmp_path)
    words = [tmp_path / "shmbridge", "run", "--llvm", "inline", *CONNECT, "--", compiler("exit 3")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "reinstall shmbridge" in done.stderr) == (1, True)
    (tmp_path / "shmbridge-python").symlink_to(PYTHON)
    assert subprocess.run(words, timeout=60).returncode == 3

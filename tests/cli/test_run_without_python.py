"""`shmbridge run --connect` does without Python what Python does."""

import os
import re
import shlex
import shutil
import signal
import subprocess

import click
import pytest
from support.processes import printed
from support.run import CONNECT, PYTHON, SHMBRIDGE

from shmbridge import _config
from shmbridge.cli.run import run as the_run

pytestmark = pytest.mark.usefixtures("nothing_is_left")
by_strict = pytest.mark.parametrize(("strict", "status"), [([], 4), (["--strict"], 1)])


@pytest.fixture
def both(compiler, monkeypatch, tmp_path):
    """both(*options, program=a compiler that tells its arguments and environment, behind=(),
    **Popen's): what the run said and how it ended, when the command did it, and when Python did."""

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))  # each run prints its warning

    def one(run, words, **more):
        done = printed([run, "run", *words], cwd=tmp_path, **more)
        out = re.sub(r"/proc/\d+/fd/\d+", "/X", done.stdout).splitlines()
        return done.returncode, sorted(out), done.stderr.replace("shmbridge-python", "shmbridge")

    def go(*words, program=None, behind=(), **more):
        program = program or compiler("""printf '%s\\n' "$@"; tr '\\0' '\\n' < /proc/$$/environ""")
        return [one(run, [*words, "--", program, *behind], **more) for run in (SHMBRIDGE, PYTHON)]

    return go


@pytest.mark.parametrize(
    "options",
    [
        "--llvm inline --connect pipe:///b",
        "--llvm=priority,evict --connect=pipe:///b?wait=spin",
        "--llvm evict,inline,priority --llvm inline --connect a --connect pipe:///b?deadline=3 "
        "--strict",
        "--llvm inline --connect shm://b?deadlines=1&connect_timeout=1 --deadline 0.25",
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
    assert "SHMBRIDGE_LLVM_BASE=/dev/null/shmbridge" in native[1]


INLINE = "--llvm inline --connect pipe:///b"


@pytest.mark.parametrize(
    ("options", "behind"),
    [
        ("--llvm inline,inline --connect pipe:///b", ""),
        ("--llvm unroll --connect pipe:///b", ""),
        ("--llvm evict --connect pipe:///b --limit 0", ""),
        (f"{INLINE} --default inline=1", ""),
        *((f"{INLINE} {deadline}", "") for deadline in ("--deadline -1", "--deadline")),
        *((INLINE, behind) for behind in ("-flto=thin x.o", "@words", "-cc1 x.c")),
        *((options, "") for options in ("--llvm inline --connect", "--llvm", "--help")),
        ("--connect pipe:///b", ""),
    ],
)
def test_what_is_not_done_without_python_is_as_with_it(options, behind, both, tmp_path):
    (tmp_path / "words").write_text("-flto")
    native, python = both(*options.split(), behind=behind.split())
    assert native == python


@pytest.mark.parametrize("strict", [[], ["--strict"]])
@pytest.mark.parametrize("status", [0, 3])
def test_missing_advice_has_the_same_outcome_without_python(strict, status, both, compiler):
    lines = ["inline 5 0 0 ", "evict 7 2 9 it\thangs", "evict 1 1 9 other"]
    script = "; ".join(f"echo '{line}' >> $SHMBRIDGE_LLVM_REPORT" for line in lines)
    program = compiler(f'test -z "$SHMBRIDGE_LLVM_REPORT" && exit 4; {script}; exit {status}')
    options = ["--llvm", "inline,evict,priority", *CONNECT, *strict]
    native, python = both(*options, program=program)
    assert native == python
    assert native[0] == (1 if strict else 4)
    assert "5 of 8 decisions (evict 5 of 8: it hangs)" in native[2]


def test_absent_host_has_the_same_outcome_without_python(both):
    for strict in [], ["--strict"]:
        native, python = both("--llvm", "inline", "--connect", "nobody-is-here", *strict)
        assert native == python
        assert (native[0], 'no host named "nobody-is-here"' in native[2]) == (bool(strict), True)


@pytest.mark.parametrize("signal_name", ["HUP", "INT", "TERM"])
def test_signal_that_is_ignored_stays_ignored_without_python(signal_name, both, compiler):
    program = compiler(f"kill -{signal_name} $PPID; kill -{signal_name} $$; sleep 0.1; exit 4")
    for run in SHMBRIDGE, PYTHON:
        words = shlex.join([run, "run", "--llvm", "inline", *CONNECT, "--", str(program)])
        done = subprocess.run(["sh", "-c", f"trap '' {signal_name}; {words}"], timeout=60)
        assert done.returncode == 4


@pytest.mark.parametrize("run", [SHMBRIDGE, PYTHON])
def test_killed_run_takes_the_compiler_along(run, compiler):
    program = compiler("for fd; do :; done; echo ready > /proc/self/fd/$fd; exec sleep 1000")
    read, write = os.pipe()
    words = [run, "run", "--llvm", "inline", *CONNECT, "--", program, str(write)]
    with open(read, "rb") as life, subprocess.Popen(words, pass_fds=[write]) as process:
        os.close(write)
        assert life.readline() == b"ready\n"
        process.kill()
        assert life.read() == b""  # nobody has it any more


def test_command_without_its_library_leaves_the_run_to_python(compiler, tmp_path):
    shutil.copy(SHMBRIDGE, tmp_path)
    words = [tmp_path / "shmbridge", "run", "--llvm", "inline", *CONNECT, "--", compiler("exit 3")]
    done = printed(words)
    assert (done.returncode, "install the Python package" in done.stderr) == (3, True)
    (tmp_path / "shmbridge-python").symlink_to(PYTHON)
    assert subprocess.run(words, timeout=60).returncode == 3


@pytest.mark.parametrize(
    "option", [param for param in the_run.params if isinstance(param, click.Option)], ids=str
)
def test_command_without_python_finds_the_compiler_behind_every_option(option, compiler, tmp_path):
    shutil.copy(SHMBRIDGE, tmp_path)
    words = [option.opts[-1], *([] if option.is_flag else ["1"])]
    program = compiler('test "$*" = "-c -- --strict a.c" && exit 4')
    command = [tmp_path / "shmbridge", "run", *words, *CONNECT, program, "-c", "--", "--strict"]
    done = printed([*command, "a.c"])
    refused = option.name == "strict"
    assert done.returncode == (1 if refused else 4), done.stderr


@pytest.fixture
def compile_with_python(compiler, tmp_path):
    """compile_with_python(*options, **variables): a run that needs Python, whose compiler exits
    with 4 if it compiles plainly; XDG_RUNTIME_DIR makes all runs of a test one build."""
    program = compiler('test -z "$SHMBRIDGE_LLVM_URL" && exit 4')

    def go(*options, **variables):
        words = [SHMBRIDGE, "run", "--llvm", "inline", "--host", "policy:advise", *options, "--"]
        environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)} | variables
        return printed([*words, program], cwd=tmp_path, env=environment)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as whoever starts it may
    yield go
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])


@by_strict
@pytest.mark.parametrize("variable", ["PYTHONHOME", "PYTHONPATH", "PYTHONHASHSEED"])
def test_python_that_cannot_start_leaves_a_plain_compile_and_one_warning(
    variable, strict, status, compile_with_python, tmp_path
):
    (tmp_path / "click.py").write_text("raise ImportError('for another Python')")
    done = compile_with_python(*strict, **{variable: str(tmp_path)})
    assert done.returncode == status
    assert done.stderr.count("shmbridge: compiling without the policy") == (not strict)


@by_strict
@pytest.mark.parametrize(
    ("quick", "says", "lasts"),
    [
        ("unsigned alarm(unsigned s) { return ualarm(s * 1000, 0); }", "Python cannot start", True),
        ("int fork(void) { errno = EAGAIN; return -1; }", "temporarily", False),
    ],
)
def test_python_that_hangs_as_it_starts_is_ended_and_after_three_files_not_started(
    strict, status, quick, says, lasts, compile_with_python, tmp_path
):
    """Here a minute takes 60 ms. A system without room for a process may soon have some."""
    (tmp_path / "quick.c").write_text(f"#include <errno.h>\n#include <unistd.h>\n{quick}")
    subprocess.run(["cc", "-shared", "-fPIC", "quick.c", "-o", "q.so"], cwd=tmp_path, check=True)
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(1000)")
    variables = {"PYTHONPATH": str(tmp_path), "LD_PRELOAD": str(tmp_path / "q.so")}
    done = [compile_with_python(*strict, **variables) for _ in range(3)][0]
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert says in done.stderr
    if not strict:
        again = compile_with_python("-v", **variables)
        assert (again.returncode, "gave no advice" in again.stderr) == (status, lasts)


@pytest.fixture
def without_python(tmp_path):
    """The command as `cmake --install` installs it."""
    for folder, file in ("bin", SHMBRIDGE), ("lib", _config.preload()):
        (tmp_path / folder).mkdir()
        shutil.copy(file, tmp_path / folder)
    return tmp_path / "bin" / "shmbridge"


@by_strict
@pytest.mark.parametrize(
    "options", [CONNECT, [*CONNECT, "-v"], ["--limit=0", *CONNECT], ["--host", "policy:advise"]]
)
def test_command_without_python_compiles_plainly_where_it_needs_python(
    options, strict, status, compiler, without_python
):
    script = (
        'test -z "$SHMBRIDGE_LLVM_REPORT" && exit 4; echo "inline 1 1 9 x" >> '
        "$SHMBRIDGE_LLVM_REPORT"
    )
    words = [without_python, "run", "--llvm", "inline", *options, *strict, "--"]
    done = printed([*words, compiler(script)])
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_command_without_python_reports_why_there_was_no_advice_and_strict_leaves_no_output(
    strict, compiler, without_python, tmp_path
):
    program = compiler(
        'test -z "$SHMBRIDGE_LLVM_REPORT" && exit 4; touch made; echo "inline 3 0 0 " >> '
        '"$SHMBRIDGE_LLVM_REPORT"; echo "evict 1 1 9 it hangs" >> "$SHMBRIDGE_LLVM_REPORT"'
    )
    words = [without_python, "run", "--llvm", "inline,evict", *CONNECT, *strict, "--", program]
    done = printed([*words, "-o", "made"], cwd=tmp_path)
    why = "the policy made 0 of 1 decisions (evict 0 of 1: it hangs)"
    again = f"shmbridge: compiling without the policy (reported once per build): {why}\n"
    expected = (1, f"shmbridge: {why}\n", False) if strict else (4, again, True)
    assert (done.returncode, done.stderr, (tmp_path / "made").exists()) == expected

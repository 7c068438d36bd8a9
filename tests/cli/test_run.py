"""`shmbridge run` as a supervisor, with programs that are called like compilers and ask nothing:
what passes through, what ends how, what is left. tests/peers/test_stock_compilers.py has the real
ones."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.processes import printed, until
from support.run import CONNECT, ended, everywhere, preload

from shmbridge.cli import main
from shmbridge.cli._run.pipes import Pipes

pytestmark = pytest.mark.usefixtures("nothing_is_left")


# ---- What passes through ----


@everywhere
def test_exit_status_output_and_input_are_the_compilers(start, compiler):
    program = compiler('cat; echo "to stderr" >&2; exit 42')
    assert ended(start(program, stdin=subprocess.PIPE), "to stdin\n") == (
        42,
        "to stdin\n",
        "to stderr\n",
    )


@everywhere
def test_arguments_follow_the_flags_as_they_are(start, compiler, tmp_path):
    program = compiler('for word; do printf "%s\\n" "$word"; done')
    status, out, err = ended(start(program, "-O2", "a b", "--", "--help", "-v", ""))
    assert (status, err) == (0, "")
    words = out.removesuffix("\n").split("\n")
    assert words[-6:] == ["-O2", "a b", "--", "--help", "-v", ""]
    assert words[0] == "--start-no-unused-arguments"
    assert words[5] == "--end-no-unused-arguments"
    assert words[4].startswith("-inliner-interactive-channel-base=/")


@everywhere
def test_descriptors_that_were_inherited_stay_open(start, compiler):
    read, write = os.pipe()
    try:
        assert ended(start(compiler(f"echo hello > /proc/self/fd/{write}"), pass_fds=[write])) == (
            0,
            "",
            "",
        )
        assert os.read(read, 10) == b"hello\n"
    finally:
        os.close(read)
        os.close(write)


@everywhere
def test_what_python_ignores_is_not_ignored_by_the_compiler(start, compiler):
    command = ["grep", "SigIgn", "/proc/self/status"]
    plain = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert ended(start(compiler(" ".join(command)))) == (0, plain.stdout, "")


@everywhere
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=str)
def test_closed_streams_and_ignored_children_change_nothing(closed, words, compiler, tmp_path):
    def begin():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for fd in closed:
            os.close(fd)

    run = words(compiler("echo made > made; exit 3"))
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, timeout=60, preexec_fn=begin)
    assert (done.returncode, done.stderr, (tmp_path / "made").exists()) == (3, b"", True)


@preload
def test_what_the_policy_prints_goes_to_stderr(start, compiler):
    policy = """
        import sys
        print("loaded")
        def advise(request): return 0
        """
    status, out, err = ended(start(compiler("echo compiled"), policy=policy))
    assert (status, out, err) == (0, "compiled\n", "loaded\n")


@preload
def test_what_the_policy_starts_leaves_the_input_to_the_compiler(start, compiler):
    policy = """
        import subprocess
        subprocess.run(["cat"])
        def advise(request): return 0
        """
    run = start(compiler("cat"), "-x", "c", "-", policy=policy, stdin=subprocess.PIPE)
    assert ended(run, "source\n") == (0, "source\n", "")


@preload
def test_thread_that_the_model_leaves_does_not_keep_the_run(start, compiler):
    policy = """
        import threading, time
        threading.Thread(target=time.sleep, args=[1000]).start()
        def advise(request): return 0
        """
    assert ended(start(compiler(""), policy=policy)) == (0, "", "")


@preload
def test_policy_ends_in_peace(start, compiler):
    policy = """
        import atexit
        atexit.register(lambda: print("goodbye"))
        def advise(request): return 0
        """
    assert ended(start(compiler(""), policy=policy)) == (0, "", "goodbye\n")


def test_nothing_is_asked(start, compiler):
    status, _, err = ended(start(compiler(""), options=["--host", "my_policy:advise", "-v"]))
    assert (status, err) == (0, "shmbridge: the policy made 0 of 0 decisions (inline 0 of 0)\n")


@preload
def test_policy_in_a_file_is_found_under_make_c(words, compiler, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "Makefile").write_text("all:\n\t@$(CC)\n")
    launcher = " ".join(
        words(compiler("echo $#"), options=["--host", f"{tmp_path}/my_policy.py:advise"])
    )
    done = printed(["make", "-s", "-C", tmp_path / "sub", f"CC={launcher}"], cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


def test_clang_with_a_host_that_runs_starts_no_python(start, compiler, transport):
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    status, _, err = ended(start(compiler("exit 3"), options=CONNECT, env=environment))
    assert (status, "shmbridge.cli._run.policy" in err, "numpy" in err) == (
        3,
        bool(transport),
        False,
    )


# ---- How it ends ----


@everywhere
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_compiler_that_a_signal_ends_takes_the_run_with_it(number, start, compiler):
    assert ended(start(compiler(f"kill -{int(number)} $$")))[0] == -number


@everywhere
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_the_compilers(number, start, compiler, tmp_path):
    process = start(
        compiler(
            f"trap 'echo caught; exit 9' {int(number)}; touch ready; while :; do sleep 0.01; done"
        )
    )
    until((tmp_path / "ready").exists)
    process.send_signal(number)
    assert ended(process)[:2] == (9, "caught\n")


@preload
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_while_the_policy_loads_ends_the_run_and_the_policy(
    number, start, compiler, tmp_path
):
    policy = """
        import time
        print("loading", flush=True)
        while True:  # in steps, as a wait may miss a signal that comes as it begins
            time.sleep(0.05)
        """
    process = start(compiler("touch started"), policy=policy)
    assert process.stderr.readline() == "loading\n"
    process.send_signal(number)
    assert ended(process)[0] == -number  # its output ends, so nobody has it
    assert not (tmp_path / "started").exists()


def test_policy_that_hangs_does_not_keep_the_run(start, compiler):
    policy = """
        import threading, time
        def advise(request): return 0
        import atexit
        atexit.register(time.sleep, 1000)
        """
    assert ended(start(compiler("exit 5"), policy=policy))[0] == 5


# What opens a compiler's pipes, and waits for an answer.
PIPED = """
    for word; do case $word in *-channel-base=*) base=${word#*=};; esac; done
    [ "$base" ] || { echo compiled; exit 0; }
    stat -c %a "${base%/*}" "$base.in" "$base.out" > modes
    exec 3< "$base.in" 4> "$base.out"
    [ "$word" = 4 ] && echo '{"features":[]}' >&4
    trap '' TERM
    touch ready
    read answer <&3
"""


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize("transport", ["pipes"], indirect=True)
@pytest.mark.parametrize("interrupted", [False, True])
def test_pipes_are_the_users_alone_and_end_with_a_killed_run(
    interrupted, start, compiler, tmp_path
):
    """Also after a Ctrl-C, which reaches everybody."""
    life, inherited = os.pipe()
    process = start(compiler(PIPED), "-", pass_fds=[inherited])
    os.close(inherited)
    until((tmp_path / "ready").exists)
    assert (tmp_path / "modes").read_text() == "700\n600\n600\n"
    python = children(process.pid)[0]
    for child in children(python) if interrupted else ():
        if "clang.sh" not in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGINT)
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    with open(life) as alive:
        assert alive.read() == ""  # nobody has it any more


@everywhere
def test_command_line_that_asks_is_the_same_each_time(start, compiler):
    """Objects may record it: -frecord-command-line."""
    runs = [ended(start(compiler('echo "$*"'), "-c", "a.c")) for _ in range(2)]
    assert runs[0] == runs[1] and "channel-base=" in runs[0][1]


@pytest.mark.parametrize("transport", ["pipes"], indirect=True)
def test_same_command_may_compile_twice_at_once(start, compiler, tmp_path):
    script = 'touch "ready-$$"; while [ ! -e go ]; do sleep 0.01; done; echo "$5"'
    runs = [start(compiler(script), "-c", "a.c") for _ in range(2)]
    until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    (tmp_path / "go").touch()
    (one, first, _), (other, second, _) = map(ended, runs)
    assert (one, other) == (0, 0) and first != second


@pytest.mark.parametrize("transport", ["pipes"], indirect=True)
def test_compiler_that_cannot_be_answered_is_ended_and_runs_without_the_policy(start, compiler):
    status, out, err = ended(start(compiler(PIPED), "4"))
    assert (status, out) == (0, "compiled\n")
    assert "header names no advice" in err and err.count("\n") == 1


@preload
def test_warning_that_cannot_be_printed_fails_no_build(start, compiler):
    with open("/dev/full", "w") as full:
        flags = ["-mllvm", "-enable-ml-inliner=default"]  # with which nothing is asked
        assert start(compiler(""), *flags, stderr=full).wait(60) == 0


@everywhere
def test_missing_compiler_is_what_a_shell_says_it_is(start):
    status, _, err = ended(start("/no/such/clang"))
    assert (status, err) == (127, "shmbridge: /no/such/clang: no such compiler\n")


@pytest.mark.parametrize("expected", [0, 3])
def test_strict_keeps_the_compilers_status_where_all_is_well(expected, start, compiler):
    options = ["--strict", "--host", "my_policy:advise"]
    assert ended(start(compiler(f"exit {expected}"), options=options)) == (expected, "", "")


# ---- Parts ----


@pytest.mark.parametrize(
    "options",
    [
        *([], ["--host", "my_policy"], ["--connect", "x", "--record", "log"]),
        *(
            ["--host", "my_policy:advise", *more.split()]
            for more in (
                *("--connect x", "--default inline=2", "--default unroll=1", "--llvm unroll"),
                *("--deadline -1", "--limit -1"),
                "--default evict=0",  # which is not asked about
            )
        ),
    ],
)
def test_wrong_options_are_refused(options):
    result = CliRunner().invoke(main, ["run", "--llvm", "inline", *options, "--", "clang"])
    assert result.exit_code in (1, 2)
    said = result.output
    assert "xpected" in said or "not in the range" in said or "needs --host" in said, said


def test_a_compiler_whose_name_is_no_text_is_found_behind_its_pipe():
    named = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff)'); print(flush=True); input()"
    pipes = Pipes.__new__(Pipes)
    pipes._parent = os.getpid()
    words, pipe = [sys.executable, "-c", named], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as compiler:
        compiler.stdout.readline()
        assert pipes._started_by(compiler.pid) == [compiler.pid]
        compiler.communicate(b"\n")

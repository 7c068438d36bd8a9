"""When `shmbridge run` compiles a second time, without the policy, and what its user then sees: all
of it, and nothing else, is plain clang's."""

import functools
import os
import pty
import resource
import shlex
import signal
import subprocess

import pytest
from support.processes import printed
from support.run import CONNECT, SHMBRIDGE

ASKED = 'echo "asking 0 0 0 inline" >> $SHMBRIDGE_LLVM_REPORT'
ADVISED = 'echo "inline 2 0 0 " >> $SHMBRIDGE_LLVM_REPORT'
PLAINLY = 'test -z "$SHMBRIDGE_LLVM_REPORT" && { echo plain; echo "plain:" >&2; exit %d; }; '
STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU]

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def run(compiler, tmp_path):
    """run(script, *options, plain=0): how a run ended whose compiler does that when it asks, and
    else prints "plain" and ends with that status."""

    def go(script, *options, plain=0, words=("-c", "a.c"), **more):
        program = compiler(PLAINLY % plain + script)
        command = [SHMBRIDGE, "run", "--llvm", "inline", *CONNECT, *options, "--", program]
        more = {"capture_output": True, **more}
        done = subprocess.run([*command, *words], cwd=tmp_path, text=True, timeout=60, **more)
        return done.returncode, done.stdout, done.stderr

    return go


@pytest.mark.parametrize("asked", [ASKED, ADVISED])
@pytest.mark.parametrize("end", ["exit 1", "exit 134", "kill -SEGV $$", "kill -ABRT $$"])
def test_failure_after_a_question_is_the_advices_if_plain_clang_succeeds(asked, end, run):
    status, out, err = run(f"{asked}; echo asking; echo 'a.c: error' >&2; {end}")
    assert (status, out) == (0, "plain\n")
    assert err.startswith("plain:\nshmbridge: ") and "failed with the policy's advice" in err
    assert err.count("\n") == 2


def test_failure_that_is_the_users_is_told_once_and_in_plain_clangs_words(run):
    script = f"{ADVISED}; echo asking; echo 'a.c: error' >&2; exit 1"
    assert run(script, plain=3) == (3, "plain\n", "plain:\n")


@pytest.mark.parametrize("end", ["exit 1", "exit 134"])
def test_failure_that_nothing_was_asked_before_is_the_compilers_and_costs_no_more(end, run):
    status = int(end.split()[1])
    assert run(f"echo out; echo 'a.c: error' >&2; {end}") == (status, "out\n", "a.c: error\n")


@pytest.mark.parametrize("number", [*STOPS, signal.SIGKILL])
def test_compiler_that_somebody_ended_is_not_started_again(number, run):
    status, out, _ = run(f"{ADVISED}; echo asking; kill -{int(number)} $$; sleep 9")
    assert (status, out) == (-number, "asking\n")
    status, out, _ = run(f"{ADVISED}; echo asking; exit {128 + number}")
    assert (status, out) == (128 + number, "asking\n")


@pytest.mark.parametrize("flag", ["-enable-ml-inliner=release", "--start-no-unused-arguments"])
def test_compiler_that_rejects_a_flag_compiles_plainly_and_the_flag_is_named(flag, run):
    status, out, err = run(f"echo \"Unknown command line argument '{flag}'\" >&2; exit 1")
    assert (status, out, err.count("\n")) == (0, "plain\n", 2)
    assert f"does not know {flag.partition('=')[0].replace('--', '-')}" in err


def test_reproducers_of_a_crash_are_kept_and_named_for_each_file(run, tmp_path):
    script = tmp_path / "crash.sh"
    script.touch()
    crash = f"{ADVISED}; echo 'clang: note: diagnostic msg: {script}' >&2; exit 134"
    for _ in range(2):
        status, _, err = run(crash)
        assert (status, script.exists(), f"see {script}" in err) == (0, True, True), err


def test_warnings_of_what_is_kept_are_shown_in_their_order(run):
    script = f"{ADVISED}; echo 1; echo 2 >&2; echo 3"
    assert run(script) == (0, "1\n3\n", "2\n")
    assert run(script, capture_output=False, stdout=-1, stderr=subprocess.STDOUT)[1] == "1\n2\n3\n"


def test_strict_compiles_once_and_keeps_the_compilers_end(run):
    script = f"{ADVISED}; echo asking; echo 'a.c: error' >&2; exit 5"
    assert run(script, "--strict") == (5, "asking\n", "a.c: error\n")


def test_terminal_shows_both_attempts_with_a_line_between_them(compiler):
    program = compiler(PLAINLY % 1 + f"{ADVISED}; echo error >&2; exit 1")
    words = [SHMBRIDGE, "run", "--llvm", "inline", *CONNECT, "--", program]
    ours, theirs = pty.openpty()
    assert subprocess.run(words, stdout=theirs, stderr=theirs, timeout=60).returncode == 1
    os.close(theirs)
    first, between, *last = os.read(ours, 4096).decode().split("\r\n")
    os.close(ours)
    assert (first, "failed with the policy's advice" in between) == ("error", True)
    assert last[:2] == ["plain", "plain:"]


def test_policy_without_advice_for_three_files_in_a_row_is_left_alone(run, tmp_path):
    attempts = tmp_path / "attempts"
    script = f"echo >> {attempts}; echo 'inline %d 1 17 no' >> $SHMBRIDGE_LLVM_REPORT; exit 1"
    for asked in 1, 1, 2, 1, 1:  # the third got advice
        assert run(script % asked)[0] == 0
    assert attempts.read_text().count("\n") == 5
    for _ in range(3):
        assert run(script % 1)[:2] == (0, "plain\n")
    assert attempts.read_text().count("\n") == 6


# For the host, as in a full /dev/shm, which is not the policy's fault.
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); advise = len"
POLICIES = ["def advise(request): return 1", "import no_such_module", NO_ROOM]


@pytest.mark.parametrize("options", [[], ["--limit", "9"]])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_is_left_alone_costs_no_start_of_python(options, policy, compiler, tmp_path):
    (tmp_path / "policy.py").write_text(policy)
    program = compiler(PLAINLY % 0 + LACKS)
    words = ["--host", "policy:advise", *options, "--", program, "-c", "a.c"]
    command = [SHMBRIDGE, "run", "--llvm", "inline", *words]
    env = {**os.environ, "PYTHONVERBOSE": "1"}
    starts = []
    for _ in range(4):
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, b"plain\n")
        starts.append(b"import " in done.stderr)
    assert starts == [True, True, True, policy == NO_ROOM]


def test_grandchild_that_keeps_the_output_open_is_not_waited_for(run):
    assert run(f"{ADVISED}; echo made; sleep 3 & exit 0", words=())[:2] == (0, "made\n")


# ---- What can be read, or written, only once ----

LACKS = 'echo "inline 1 1 17 no" >> $SHMBRIDGE_LLVM_REPORT; exit 1'


@pytest.fixture
def shell(compiler, tmp_path):
    """shell(line): what bash says of a line in which "clang" prints and copies its last file, and
    gets no advice."""
    program = compiler(
        "for file; do :; done; file=${file#-o}; cat ${file#*[@=]}; "
        f"test -z $SHMBRIDGE_LLVM_URL || {{ {LACKS}; }}"
    )
    words = [SHMBRIDGE, "run", "--llvm", "inline", *CONNECT, "--", program]

    def go(line):
        line = line.replace("clang", shlex.join(map(str, words)))
        done = printed(["bash", "-c", line], cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return go


@pytest.mark.parametrize(
    "line",
    [
        *(f"echo source | clang -x c -c {file}" for file in ("-", "/dev/stdin", "/proc/self/fd/0")),
        *(f"clang {words}<(echo source)" for words in ("-x c -c ", "-c @", "-c --include=")),
        "clang -x c -c - <<< source",
        *(f"echo source > a.c; clang -c {file}" for file in ("a.c", "/dev/stdin < a.c")),
    ],
)
def test_source_that_can_be_read_once_is_compiled_twice(line, shell):
    status, out, err = shell(line)
    assert (status, out, err.count("\n")) == (0, "source\n", 1), err


@pytest.mark.parametrize(
    "line",
    [
        "mkfifo a.c; echo source > a.c & clang -c a.c",
        "mkfifo a.rsp; echo source > a.rsp & clang -c @a.rsp",
        "echo source > a.c; clang -o >(cat > /dev/null) a.c",
        "mkfifo o; cat o & echo source > a.c; clang -oo a.c; : > o; wait",
    ],
)
def test_file_that_cannot_be_had_twice_is_compiled_plainly_at_once(line, shell):
    status, out, err = shell(line)
    assert (status, out) == (0, "source\n")
    assert "can be read or written only once" in err and err.count("\n") == 1


# ---- Where there is no room ----


@pytest.mark.parametrize("end", ["exit 0", "exit 1"])
def test_output_that_cannot_be_held_back_comes_whole_from_a_plain_compilation(end, run):
    script = f"{ADVISED}; yes out | head -c 200000; {end}"
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    status, out, err = run(script, preexec_fn=limit)
    assert (status, out) == (0, "plain\n")
    assert "no room to hold back" in err and err.count("\n") == 2


@pytest.mark.parametrize("source", ["-", "/dev/stdin", "<(cat a.c)"])
def test_source_that_there_is_no_room_to_keep_is_compiled_whole(source, shell, tmp_path):
    text = "".join(f"{i}\n" for i in range(40000))
    (tmp_path / "a.c").write_text(text)
    status, out, err = shell(f"ulimit -f 100; cat a.c | clang -x c -c {source} | cat")
    assert (status, out) == (0, text)
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("options", [[], ["--limit", "9"]])
def test_output_that_cannot_be_delivered_is_a_failure_as_of_a_plain_compiler(options, run):
    with open("/dev/full", "w") as full:
        more = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
        status, _, err = run(f"{ADVISED}; echo out", *options, **more)
        assert (status, "No space left on device" in err) == (1, True)
        read, write = os.pipe()
        os.close(read)
        status = run(f"{ADVISED}; echo out", *options, **{**more, "stdout": write})[0]
        os.close(write)
    assert status == -signal.SIGPIPE


@pytest.mark.parametrize("options", [["-v"], ["-v", "--limit", "9"]])
def test_message_that_nobody_reads_costs_no_object(options, run):
    read, write = os.pipe()
    os.close(read)
    more = {"capture_output": False, "stdout": subprocess.PIPE, "stderr": write}
    assert run(f"{ADVISED}; echo made", *options, **more)[:2] == (0, "made\n")
    os.close(write)

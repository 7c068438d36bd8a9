"""`shmbridge run` where something is missing: a plain compile and one warning, or with --strict an
error."""

import os
import shutil
import subprocess
import sys

import pytest
from support.processes import printed
from support.run import PLAIN, SHMBRIDGE, ended, preload

LEAVES_A_THREAD = "import threading, time; threading.Thread(target=time.sleep, args=[1000]).start()"
pytestmark = [preload, pytest.mark.usefixtures("nothing_is_left")]


@pytest.fixture
def in_room_of(words, tmp_path):
    """in_room_of(size, *command, ...): how a run ended that had so much room in /dev/shm, or
    nothing else in another folder."""

    def go(size, *command, folder="/dev/shm", **more):
        inside = f'mount -t tmpfs -o size={size} tmpfs {folder} && exec "$@"'
        mount = ["unshare", "-m", "sh", "-c", inside, "sh"]
        if subprocess.run([*mount, "true"], capture_output=True).returncode:
            pytest.skip("a /dev/shm of our own needs root")
        run = [*mount, *words(*command, **more)]
        done = printed(run, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return go


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"policy": "import no_such_module"}, "No module named 'no_such_module'"),
        ({"policy": "raise ValueError('the model is gone')"}, "the model is gone"),
        ({"policy": "advise = 7"}, "expected a function, found int"),
        ({"policy": "async def advise(request): return 1"}, "found an async one"),
        ({"policy": ""}, "has no attribute 'advise'"),
        ({"policy": "raise SystemExit(3)"}, "process ended (exit 3) while it loaded\n"),
        ({"policy": f"{LEAVES_A_THREAD}; raise SystemExit(3)"}, "ended (exit 3) while it loaded\n"),
        ({"policy": "import os; os._exit(4)"}, "process ended (exit 4) while it loaded\n"),
        ({"policy": "import os; os.kill(os.getpid(), 9)"}, "ended (SIGKILL) while it loaded\n"),
        ({"policy": "import os; os.abort()"}, "ended (SIGABRT) while it loaded\n"),
        ({"options": ["--onnx", "no_such_model.onnx"]}, "no_such_model.onnx"),
        ({"options": ["--host", "my_policy:advise", "--record", "none/log"]}, "none/log"),
    ],
)
def test_policy_or_file_that_cannot_be_loaded_leaves_a_plain_compile_and_one_warning(
    given, why, start, compiler
):
    status, out, err = ended(start(compiler(PLAIN), **given))
    assert (status, out, err.count("\n")) == (3, "0\n", 1), err
    assert err.startswith("shmbridge: compiling without the policy (reported once per build): ")
    assert why in err


def test_policy_that_never_loads_leaves_a_plain_compile_and_is_not_loaded_again_soon(
    words, compiler, tmp_path
):
    policy = "open('loads', 'a').write('x'); import time; time.sleep(100)"
    shmbridge = (
        "from shmbridge.cli import program; from shmbridge.cli._run import child, policy; "
        "policy.LOAD_SECONDS = 0.5; child.GRACE = 1000; program()"
    )
    command = [sys.executable, "-c", shmbridge, *words(compiler(PLAIN), policy=policy)[1:]]
    first, second = (printed(command, cwd=tmp_path, timeout=20) for _ in range(2))
    assert (first.returncode, first.stdout, second.returncode) == (3, "0\n", 3)
    assert "the policy did not load within 0.5 s" in first.stderr
    assert (second.stderr, (tmp_path / "loads").read_text()) == ("", "x")


def test_compiler_whose_name_tells_nothing_runs_plainly_and_is_told_what_to_do(start, compiler):
    program = compiler(PLAIN, name="mycc")
    status, out, err = ended(start(program))
    assert (status, out, err.count("\n")) == (3, "0\n", 1), err
    assert "--flags-for" in err
    host = ["--host", "my_policy:advise"]
    status, _, err = ended(start(program, options=["--flags-for", "llc", *host]))
    assert (status, "llc does not decide on inline" in err) == (1, True)  # a wrong option
    status, out, err = ended(start(program, options=["--flags-for", "opt", *host]))
    assert (status, err, int(out) > 0) == (3, "", True)


def test_no_room_in_shm_is_room_enough_in_tmpdir(in_room_of, compiler):
    status, out, err = in_room_of("64k", compiler(PLAIN))
    assert (status, err, int(out) > 0) == (3, "", True)


def test_no_room_leaves_a_plain_compile_and_one_warning(in_room_of, compiler, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    status, out, err = in_room_of("64k", compiler(PLAIN))
    assert (status, out, err.count("\n")) == (3, "0\n", 1), err
    assert "/dev/shm" in err


def test_without_proc_a_plain_compile_and_one_warning_or_strict_an_error(in_room_of, tmp_path):
    compiler = shutil.copy(shutil.which("true"), tmp_path / "clang")
    for strict in [], ["--strict"]:
        options = [*strict, "--host", "my_policy:advise"]
        status, _, err = in_room_of("1m", compiler, folder="/proc", options=options)
        assert (status, err.count("\n")) == (len(strict), 1), err


@pytest.mark.parametrize("at", [SHMBRIDGE, "shmbridge", "link"])
def test_without_proc_the_command_finds_its_python(at, transport, tmp_path):
    (tmp_path / "link").symlink_to(SHMBRIDGE)
    inside = 'mount -t tmpfs tmpfs /proc && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", inside, "sh", "./link" if at == "link" else at, "ls"]
    path = {"PATH": f"{os.path.dirname(SHMBRIDGE)}:{os.environ['PATH']}"}
    done = printed(command, cwd=tmp_path, env=os.environ | path)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("a /proc of our own needs root")
    assert done.returncode == 0 and "bridge" in done.stdout, done.stderr


def test_half_a_megabyte_is_room_enough(in_room_of, compiler):
    status, out, err = in_room_of("512k", compiler(PLAIN))
    assert (status, err, int(out) > 0) == (3, "", True)


@pytest.mark.parametrize("limit", ["--nproc=1", "--nproc=2", "--nproc=3", "--nofile=7"])
def test_few_processes_or_descriptors_leave_an_object(limit, words, tmp_path):
    if os.geteuid():
        pytest.skip("root can become a user without processes")
    tmp_path.parent.chmod(0o711)
    tmp_path.chmod(0o777)
    user = ["setpriv", "--reuid=64321", "--clear-groups", "prlimit", limit]
    compiler = shutil.copy(shutil.which("touch"), tmp_path / "clang")
    command = [*user, *words(compiler, "made")]
    done = printed(command, cwd=tmp_path)
    assert (done.returncode, (tmp_path / "made").exists()) == (0, True), done.stderr


@pytest.mark.parametrize("policy", ["import no_such_module", "raise SystemExit(3)"])
def test_strict_starts_no_compiler_without_its_policy(policy, start, compiler):
    options = ["--strict", "--host", "my_policy:advise"]
    status, out, err = ended(start(compiler(PLAIN), policy=policy, options=options))
    assert (status, out, err.count("\n")) == (1, "", 1), err
    assert "no_such_module" in err or "exit 3" in err


def test_strict_starts_no_compiler_whose_name_tells_nothing(start, compiler):
    status, out, err = ended(
        start(compiler(PLAIN, name="mycc"), options=["--strict", "--host", "my_policy:advise"])
    )
    assert (status, out, "--flags-for" in err) == (1, "", True)

"""Whatever a compiler does is an outcome, and nothing is left of it: conftest.py looks for
processes and files after each test."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.bridges import shm_path
from support.cli import run
from support.compilations import marked
from support.processes import stat_of, until, words_of

from shmbridge._jobs import supervised, supervisor
from shmbridge.errors import ShmbridgeError
from shmbridge.training import Task
from shmbridge.training.scores import text_size

LIMIT = 1.0  # seconds, of a compiler that hangs

pytestmark = pytest.mark.filterwarnings("error")  # of sockets that nobody closed


def again(outcome):
    """The exit status of the line that does the same again; minus the signal, if the shell became
    the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            ["bash", "-c", outcome.command],
            env={**os.environ, "TMPDIR": folder},
            capture_output=True,
            timeout=60,
        ).returncode


@pytest.mark.parametrize(
    ("script", "kind", "status", "stderr"),
    [
        ('cat "$1" > "$2"', "ok", 0, ""),
        ('echo "a.c:3: error" >&2; exit 42', "exit status", 42, "a.c:3: error\n"),
        ("printf '\\377\\376\\000x' >&2; exit 1", "exit status", 1, "\ufffd\ufffd\0x"),
        ("exit 0", "no score", 0, "wrote nothing to the task's {output}"),
    ],
)
def test_one_that_exits(sh, corpus, script, kind, status, stderr):
    outcome = sh(script, scores={"size": os.path.getsize}).run(corpus[0])
    assert (outcome.kind, outcome.exit, outcome.signal) == (kind, status, "")
    assert outcome.ok == (kind == "ok") and outcome.module == "a.txt"
    assert outcome.scores == ({"size": len("the text of a\n")} if outcome.ok else {})
    assert outcome.stderr.endswith(stderr) and again(outcome) == status


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGKILL", "SIGTERM"])
def test_one_that_a_signal_ends(sh, corpus, name):
    number = signal.Signals[name]
    outcome = sh(f'echo "about to end" >&2; kill -{int(number)} $$').run(corpus[0])
    assert (outcome.kind, outcome.exit, outcome.signal) == ("signal", -number, name)
    assert outcome.stderr == "about to end\n" and outcome.scores == {}
    assert again(outcome) in (128 + number, -number)


def test_one_that_writes_garbage(sh, corpus):
    task = sh('head -c 5000 /dev/urandom > "$2"; echo done >&2', scores={"text": text_size})
    outcome = task.run(corpus[0])
    assert (outcome.kind, outcome.exit, outcome.scores) == ("no score", 0, {})
    assert outcome.stderr.startswith("done\n") and "expected an ELF file" in outcome.stderr


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000",
        "trap '' TERM INT HUP QUIT; while :; do sleep 0.01; done",
        "kill -STOP $$",
        "exec 2>&- >&-; sleep 1000",
        "yes >&2",
    ],
)
def test_one_that_hangs(sh, corpus, script):
    outcome = sh(script, seconds=LIMIT).run(corpus[0])
    assert (outcome.kind, outcome.exit, outcome.signal) == ("time limit", -9, "SIGKILL")
    assert outcome.seconds >= LIMIT


def test_one_that_eats_memory(py, corpus):
    task = py("taken = b'x' * (400 << 20); time.sleep(1000)", memory=200 << 20)
    outcome = task.run(corpus[0])
    assert (outcome.kind, outcome.signal) == ("memory limit", "SIGKILL")
    assert outcome.memory > 200 << 20
    assert py("").memory == 4 << 30  # as Task's documentation says


def test_one_whose_children_eat_memory_together(py, corpus):
    eat = "import time; taken = b'x' * (60 << 20); time.sleep(1000)"
    start = f"[subprocess.Popen([sys.executable, '-c', {eat!r}]) for _ in range(4)]"
    task = py(f"children = {start}; time.sleep(1000)", memory=200 << 20)
    assert task.run(corpus[0]).kind == "memory limit"


def test_one_that_fills_the_disk(sh, corpus):
    outcome = sh('truncate -s 2G "$2"').run(corpus[0])
    assert outcome.kind in ("signal", "exit status")  # of SIGXFSZ


def test_one_that_floods_stderr(sh, corpus):
    outcome = sh("head -c 50000000 /dev/zero | tr '\\0' x >&2; echo the end >&2").run(corpus[0])
    assert outcome.kind == "ok"
    assert len(outcome.stderr) == 4096 and outcome.stderr.endswith("xxxthe end\n")


@pytest.mark.parametrize("how", ["", "setsid", "nohup"])
def test_one_whose_child_outlives_it(how, no_leftovers):
    with supervised.SupervisedProcess(["sh", "-c", f"{how} sleep 1000 &"]) as job:
        report = job.wait()
        assert report.status == 0 and report.seconds < supervisor.GIVE_UP
        assert "sleep" not in "".join(map(words_of, marked(no_leftovers)))


def test_the_folder_of_one_that_is_closed_is_gone():
    with supervised.SupervisedProcess(["sleep", "1000"]) as job:
        until(job.folder.exists)
    assert not job.folder.exists()


def test_one_that_is_not_closed_ends_with_the_trainer_though_a_fork_of_that_lives():
    job = supervised.SupervisedProcess(["sleep", "1000"], seconds=5)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    supervised._supervisor.close()  # as the kernel does when it is killed
    supervised._supervisor = None
    assert job.wait().limit == "ended"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    job.close()


def test_a_trainer_that_was_busy_does_not_count_that_time():
    with supervised.SupervisedProcess(["sleep", "1000"]) as job:
        job._looked = time.monotonic() - 1000  # it has started
        job._count_time()
        assert job._used == 2 * supervised.LOOK


def test_one_for_which_a_thread_waits_can_be_closed_in_a_fork(in_thread):
    with supervised.SupervisedProcess(["sleep", "1000"]) as job:
        call = in_thread(job.wait)
        until(job._reading.locked)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)
            job.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0 and call.is_alive()
    assert call.result().limit == "ended"


def test_one_whose_grandchildren_are_daemons(py, corpus, no_leftovers):
    outcome = py(
        """
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(1000)
            os._exit(0)
        os.wait()
        """
    ).run(corpus[0])
    assert outcome.kind == "ok"
    assert not [pid for pid in marked(no_leftovers) if "compiler-" in words_of(pid)]


@pytest.mark.parametrize(("most", "session"), [(2000, "its own"), (400, "another")])
def test_one_that_forks_without_end(py, corpus, most, session):
    code = f"""
        while len(os.listdir("/proc")) < {most}:
            if os.fork() == 0 and {session == "another"}:
                os.setsid()
            time.sleep(0.05)
    """
    assert py(code, seconds=LIMIT).run(corpus[0]).kind in ("time limit", "memory limit", "ok")


def test_one_that_cannot_be_started(corpus, tmp_path):
    program = tmp_path / "no-program"
    program.write_text("neither a script nor a binary")
    program.chmod(0o755)
    outcome = Task([program, "{module}"]).run(corpus[0])
    assert (outcome.kind, outcome.exit) == ("not started", 127)
    assert "Exec format error" in outcome.stderr


def test_one_whose_folder_is_gone(sh, corpus, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    module = type(corpus[0])("a", corpus[0].path, folder=folder)
    task = sh("true")
    assert task.run(module).kind == "ok"
    shutil.rmtree(folder)
    assert task.run(module).kind == "not started"


def test_one_whose_work_folder_cannot_be_made(sh, corpus, monkeypatch, tmp_path):
    task = sh('cat "$1" > "$2"')
    assert task.run(corpus[0]).kind == "ok"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    outcome = task.run(corpus[0])
    assert (outcome.kind, outcome.exit) == ("not started", 127)
    assert "No such file or directory" in outcome.stderr and "gone" in outcome.stderr
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert task.run(corpus[0]).kind == "ok"


def test_one_whose_work_folder_disappears(sh, corpus, in_thread, tmp_path):
    waits = f"touch {tmp_path}/there; while [ -e {tmp_path}/there ]; do sleep 0.01; done"
    task = sh(f'{waits}; cat "$1" > "$2"', scores={"size": os.path.getsize})
    call = in_thread(task.run, corpus[0])
    until((tmp_path / "there").exists)
    for entry in Path(os.environ["TMPDIR"]).iterdir():  # as what cleans /tmp
        shutil.rmtree(entry)
    (tmp_path / "there").unlink()
    outcome = call.result()
    assert outcome.kind == "exit status" and "cannot create" in outcome.stderr
    assert sh('cat "$1" > "$2"').run(corpus[0]).kind == "ok"


FAILS = """
import os, sys

def fails(name):
    call = getattr(os, name)
    def once(*arguments, **more):
        global left
        left -= 1
        if left or os.path.exists(os.environ["FAILED"]):
            return call(*arguments, **more)
        print(name, file=open(os.environ["FAILED"], "w"))
        raise BlockingIOError(11, "Resource temporarily unavailable")
    setattr(os, name, once)

if "_jobs.supervisor" in " ".join(sys.orig_argv):
    left = int(os.environ["FAILS"])
    for name in ("fork", "mkdir", "open", "pidfd_open", "pipe", "pipe2"):
        fails(name)
"""


def test_one_whose_supervisor_has_a_call_that_fails(sh, corpus, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FAILS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("FAILED", str(tmp_path / "failed"))
    task, calls = sh('cat "$1" > "$2"'), []
    for n in itertools.count(1):
        monkeypatch.setenv("FAILS", str(n))
        supervised._stop()
        supervised._supervisor = None
        try:
            outcome = task.run(corpus[0])
            assert (outcome.kind, outcome.stderr) == ("ok", "") or (
                outcome.kind == "not started" and "temporarily unavailable" in outcome.stderr
            ), (outcome, calls)
        except ShmbridgeError as error:
            assert "could not start" in str(error)
        if not (tmp_path / "failed").exists():
            break
        running = supervised._supervisor
        assert task.run(corpus[0]).kind == "ok" and running in (None, supervised._supervisor)
        calls.append((tmp_path / "failed").read_text())
        (tmp_path / "failed").unlink()
    assert len(calls) > 6, calls


def test_one_whose_supervisor_does_not_start(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(1000)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(supervised, "START", 0.1)
    with pytest.raises(TimeoutError):
        supervised.SupervisedProcess(["true"])


def test_one_whose_supervisors_end_at_once(monkeypatch):
    def dead_supervisor():
        orders, its_orders = socket.socketpair(type=socket.SOCK_SEQPACKET)
        its_orders.close()
        return orders

    monkeypatch.setattr(supervised, "_start", dead_supervisor)
    with pytest.raises(ShmbridgeError, match="is killed repeatedly"):
        supervised.SupervisedProcess(["true"])


def supervisor_of(mark):
    (found,) = (pid for pid in marked(mark) if "_jobs.supervisor" in words_of(pid))
    return found


def test_one_whose_supervisor_is_killed(sh, corpus, in_thread, no_leftovers):
    call = in_thread(sh("setsid sleep 1000 & sleep 1000").run, corpus[0])
    until(lambda: sum("sleep" in words_of(pid) for pid in marked(no_leftovers)) == 2)
    os.kill(supervisor_of(no_leftovers), signal.SIGKILL)
    outcome = call.result()
    assert outcome.kind == "ended" and "supervises the compiler has ended" in outcome.stderr
    until(lambda: not any("sleep" in words_of(pid) for pid in marked(no_leftovers)))


def test_one_whose_supervisor_is_killed_while_its_output_is_scored(sh, corpus, no_leftovers):
    def score(output):
        pid = supervisor_of(no_leftovers)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not stat_of(pid))
        return os.path.getsize(output)

    outcome = sh('cat "$1" > "$2"', scores={"size": score}).run(corpus[0])
    assert (outcome.kind, outcome.exit, outcome.scores) == ("ok", 0, {"size": 14})


def test_one_whose_supervisor_hangs_is_given_up(monkeypatch, in_thread, no_leftovers):
    monkeypatch.setattr(supervised, "STOP", 0.1)
    job = supervised.SupervisedProcess(["sleep", "1000"])
    until(lambda: "sleep 1000 " in map(words_of, marked(no_leftovers)))
    os.kill(supervisor_of(no_leftovers), signal.SIGSTOP)
    in_thread(job.close).result()
    os.kill(supervisor_of(no_leftovers), signal.SIGCONT)


def test_one_whose_trainer_ignores_children(sh, corpus, monkeypatch):
    monkeypatch.setattr(supervised, "_supervisor", None)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert sh("exit 3").run(corpus[0]).kind == "exit status"
    finally:
        signal.signal(signal.SIGCHLD, before)
        supervised._stop()


# ---- The end of the trainer ----

TRAINER = """
import sys, threading, time
from shmbridge import Host
from shmbridge.training import Corpus
from shmbridge._jobs import supervisor
from shmbridge.training import Task
from shmbridge.training import Workers

name, *modules = sys.argv[1:]
corpus = Corpus.from_sources(*modules)
task = Task([sys.executable, "-c",
    "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True); "
    "time.sleep(1000)",
             "{module}"])
with Host(name) as host, Workers(task, corpus.sampler(1)) as workers:
    workers.open(host.url)
    for slot in range(3):
        workers.begin(slot)
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "close":
        host.receive()
"""


def started(trainer, no_leftovers):
    """A trainer whose three compilers run."""
    assert trainer.line() == "ready"
    until(lambda: sum("sleep 1000" in words_of(pid) for pid in marked(no_leftovers)) == 3)
    return trainer


def test_gc_removes_the_work_folders_of_a_trainer_that_is_killed_with_its_supervisor(
    name, corpus, python, no_leftovers
):
    modules = [module.path for module in corpus]
    trainer = started(python(TRAINER, name, *modules, stderr=subprocess.DEVNULL), no_leftovers)
    folder = Path(os.environ["TMPDIR"])
    (folder / "shmbridge-task-link").symlink_to(folder.parent)
    assert "shmbridge-task-" not in run("gc").stdout  # all of it is in use
    for number, pid in itertools.product((signal.SIGSTOP, signal.SIGKILL), marked(no_leftovers)):
        with suppress(ProcessLookupError):  # a compiler ends with its supervisor
            os.kill(pid, number)  # all at once
    trainer.wait(20)
    until(lambda: not marked(no_leftovers))
    left = [path for path in folder.iterdir() if not path.is_symlink()]
    assert len(left) == 3
    said = run("gc").stdout
    assert all(f"removed {path}: a work folder" in said for path in left)
    assert [path.name for path in folder.iterdir()] == ["shmbridge-task-link"]
    (folder / "shmbridge-task-link").unlink()


@pytest.mark.parametrize("name_of", ["SIGINT", "SIGTERM", "SIGKILL", "close", "ray"])
def test_compilers_and_the_bridge_end_with_the_trainer(name_of, name, corpus, python, no_leftovers):
    modules = [module.path for module in corpus]
    trainer = started(python(TRAINER, name, *modules, stderr=subprocess.DEVNULL), no_leftovers)
    trainer.say("close" if name_of == "close" else "go")
    if name_of == "ray":  # which kills the children of an actor, then the actor
        for task in Path(f"/proc/{trainer.pid}/task").iterdir():
            with suppress(OSError):  # a thread, or a child, has ended
                for pid in (task / "children").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
    if name_of != "close":
        os.kill(trainer.pid, signal.SIGKILL if name_of == "ray" else signal.Signals[name_of])
    trainer.wait(20)
    until(lambda: not marked(no_leftovers))


def test_the_bridge_goes_though_its_host_ends_after_the_trainers_socket(name, python):
    host = python(
        """
        import sys, shmbridge
        with shmbridge.Host(sys.argv[1]):
            print("ready", flush=True)
            sys.stdin.read()
        """,
        name,
    )
    assert host.line() == "ready"
    orders, its_orders = socket.socketpair(type=socket.SOCK_SEQPACKET)
    job, its_job = socket.socketpair()
    child = os.fork()
    if child == 0:
        for each in (orders, job, its_job):
            each.close()
        supervisor.serve(its_orders)
    its_orders.close()
    assert orders.recv(1) == b"r"
    socket.send_fds(orders, [name.encode()], [its_job.fileno()])
    for each in (orders, job, its_job):
        each.close()
    time.sleep(0.3)
    host.kill()
    os.waitpid(child, 0)
    assert not shm_path(name).exists()

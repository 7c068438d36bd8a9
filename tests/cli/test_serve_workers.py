"""shmbridge serve --workers: several processes under one name."""

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.cli import SHMBRIDGE, refused, run
from support.processes import SHM, alive, until, words_of

import shmbridge
from shmbridge._bridge import overview, segment

MODELS = """
import os, signal, time
from pathlib import Path

while Path("slow").exists():
    time.sleep(0.05)
if Path("fails").exists():
    Path("failed").touch()
    raise ValueError("this model does not load")

def pid(request):
    return os.getpid()

def computes(request):
    Path(f"asked-{os.getpid()}").touch()
    time.sleep(1000)

def deaf(request):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Path(f"asked-{os.getpid()}").touch()
    while True:
        time.sleep(1000)

def ends(request):
    os._exit(3)
"""
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def where(tmp_path, monkeypatch):
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def name(name):
    """Afterwards nothing of it or its workers may be left."""
    yield name
    until(lambda: not list(SHM.glob(f"shmb.{name}*")))


@pytest.fixture
def workers(serve, name):
    """workers("pid", …): serves with two workers, unless --workers follows; all of them answer."""

    def start(model, *more):
        count = int(str(more[more.index("--workers") + 1])) if "--workers" in more else 2
        serving = serve(name, "--python", f"models:{model}", "--workers", count, *more)
        until(lambda: len(living(name)) == count)
        return serving

    return start


def living(name):
    """The process of each worker that answers."""
    return {b.worker: b.pid for b in overview.bridges(name) if b.alive and b.looping}


def connected(name, stack, count):
    return [stack.enter_context(shmbridge.connect(name)) for _ in range(count)]


# ---- Which worker ----


def test_serving_is_printed_once_every_worker_takes_runners(serve, where, name):
    (where / "models.py").write_text(f"{MODELS}\ntime.sleep(0.5)  # to load\n")
    serve(name, "--python", "models:pid", "--workers", 3)
    with contextlib.ExitStack() as stack:
        runners = connected(name, stack, 3)
        assert len({runner.evaluate({"x": 1}) for runner in runners}) == 3


def test_runners_that_connect_at_once_use_every_worker(workers, name, in_thread):
    workers("pid", "--channels", 16)
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait()
        with shmbridge.connect(name) as runner:
            pid = runner.evaluate({"x": 1})
            barrier.wait()
        return pid

    calls = [in_thread(ask) for _ in range(8)]
    assert {call.result() for call in calls} == set(living(name).values())


def test_all_channels_of_all_workers_can_be_taken(workers, name):
    workers("pid", "--channels", 2)
    with contextlib.ExitStack() as stack:
        connected(name, stack, 4)
        with pytest.raises(shmbridge.BusyError, match="--channels"):
            shmbridge.connect(f"{name}?deadline=0.2")


def test_one_worker_is_an_ordinary_host(serve, name):
    serving = serve(name, "--python", "models:pid", "--workers", 1)
    with shmbridge.connect(name) as runner:
        assert runner.evaluate({"x": 1}) == serving.pid
    assert [path.name for path in SHM.glob(f"shmb.{name}*")] == [f"shmb.{name}"]


# ---- Death ----


@pytest.mark.parametrize("killed", [0, 1])
def test_runners_use_the_other_worker_until_a_killed_one_is_replaced(workers, name, where, killed):
    workers("pid")
    (where / "slow").touch()  # the replacement does not load
    before = living(name)
    os.kill(before[killed], signal.SIGKILL)
    until(lambda: len(living(name)) == 1)
    with contextlib.ExitStack() as stack:
        for runner in connected(name, stack, 4):
            assert runner.evaluate({"x": 1}) == before[1 - killed]
        # Nothing may take away the name meanwhile, through which the other worker is found.
        again = ["serve", name, "--python", "models:pid", "--workers", 2]
        assert "live host" in refused(1, *again, cwd=where)
        assert "live host" in refused(1, "gc", name)
        segment.gc()
        with pytest.raises(shmbridge.InUseError):
            shmbridge.Host(name)
        with pytest.raises(shmbridge.BusyError):
            shmbridge.connect(f"{name}?deadline=0.1")
    with shmbridge.connect(name) as runner:
        assert runner.evaluate({"x": 1}) == before[1 - killed]
    (where / "slow").unlink()
    until(lambda: len(living(name)) == 2)


def test_a_runner_with_retries_gets_advice_while_workers_are_killed(workers, name):
    workers("pid")
    with shmbridge.connect(name, retries=20, backoff=0.1, deadline=20) as runner:
        for _ in range(4):
            os.kill(int(runner.evaluate({"x": 1})), signal.SIGKILL)
        until(lambda: len(living(name)) == 2)
        assert runner.evaluate({"x": 1}) in living(name).values()


def test_a_worker_that_keeps_ending_is_replaced_once_a_second(workers, name):
    serving = workers("ends")
    until_time = time.monotonic() + 4
    while time.monotonic() < until_time:
        with contextlib.suppress(shmbridge.ShmbridgeError), shmbridge.connect(name) as runner:
            runner.evaluate({"x": 1})
    said = serving.end()
    assert "(exit 3): starting another in 1.0 s" in said and said.count("starting another") <= 2 * 5


def test_the_end_of_another_child_ends_no_worker(name, where):
    """A shell's job, as here, or an orphan that a container's first process gets."""
    words = shlex.join([*SHMBRIDGE, *f"serve {name} --python models:pid --workers 2".split()])
    job = "while [ ! -e over ]; do sleep 0.05; done"
    shell = ["sh", "-c", f"({job}) & exec {words}"]
    with subprocess.Popen(shell, cwd=where, stderr=subprocess.PIPE, text=True) as serving:
        until(lambda: len(living(name)) == 2)
        children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
        (job,) = (child for child in children if "while" in words_of(child))
        (where / "over").touch()
        until(lambda: not alive(job))
        before = living(name)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: living(name).get(0, before[0]) != before[0])
        serving.terminate()
        said = serving.communicate()[1]
    assert said.count("starting another") == 1 and "Traceback" not in said


def test_a_replacement_that_does_not_load_is_tried_again(workers, name, where):
    serving = workers("pid")
    (where / "fails").touch()
    os.kill(living(name)[0], signal.SIGKILL)
    until((where / "failed").exists)
    (where / "fails").unlink()
    until(lambda: len(living(name)) == 2)
    assert "this model does not load" in serving.end()


@pytest.mark.parametrize("model", ["pid", "computes", "deaf"])
def test_workers_of_a_killed_supervisor_end(workers, where, name, model, in_thread):
    serving = workers(model)
    pids = list(living(name).values())
    calls = [in_thread(ask_once, name) for _ in range(2)]
    until(lambda: model == "pid" or len(list(where.glob("asked-*"))) == 2)
    serving.kill()
    serving.wait()
    until(lambda: not any(map(alive, pids)))
    for call in calls:
        call.result()
    serving.communicate()
    segment.gc()


def ask_once(name):
    with contextlib.suppress(shmbridge.ShmbridgeError), shmbridge.connect(name) as runner:
        runner.evaluate({"x": 1})


def starting(name, where):
    command = [*SHMBRIDGE, "serve", name, "--python", "models:pid", "--workers", "3"]
    return subprocess.Popen(
        [*command, "--channels", "4"], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_supervisor_killed_at_any_moment_leaves_no_process(name, where, seed):
    process = starting(name, where)
    time.sleep(random.Random(seed).uniform(0.1, 1.2))
    process.kill()
    process.communicate(timeout=10)  # to the end of its output: no process is left
    segment.gc()


@pytest.mark.parametrize("seed", range(2))
def test_a_signal_at_any_moment_ends_it_and_leaves_nothing(name, where, seed):
    process = starting(name, where)
    time.sleep(random.Random(seed).uniform(0.3, 1.2))
    process.send_signal(random.Random(seed).choice([signal.SIGINT, signal.SIGTERM]))
    said = process.communicate(timeout=10)[0]
    assert b"Traceback" not in said or process.returncode != 0
    assert not list(SHM.glob(f"shmb.{name}*"))


# ---- The command ----


def test_a_signal_ends_all_workers(workers, name):
    serving = workers("pid")
    pids = living(name).values()
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": 1})
    said = serving.end(signal.SIGINT)
    assert "with 2 workers" in said and said.count("serving") == 1
    summaries = sorted(line[:9] for line in said.splitlines() if " requests" in line)
    assert summaries == ["worker 0:", "worker 1:"]
    assert not any(map(alive, pids)) and not list(SHM.glob(f"shmb.{name}*"))


def test_signals_do_not_delay_the_end_for_a_model_that_computes(workers, where, name, in_thread):
    serving = workers("deaf")
    call = in_thread(ask_once, name)
    until(lambda: list(where.glob("asked-*")))
    serving.end()
    assert not list(SHM.glob(f"shmb.{name}*"))
    call.result()


def test_a_model_that_does_not_load_is_an_error_once(where, name):
    (where / "fails").touch()
    said = refused(1, "serve", name, "--python", "models:pid", "--workers", 3, cwd=where)
    assert said.count("this model does not load") == 1


def test_ls_and_inspect_show_every_worker(workers, name):
    workers("pid")
    with shmbridge.connect(name) as runner:
        pid = runner.evaluate({"x": 1})
        said = run("ls").stdout
        assert f"shm://{name} " in said and f"shm://{name} worker 1 " in said
        said = run("inspect", name).stdout
        assert f"shm://{name}: host" in said and f"shm://{name} worker 1: host" in said
        lines = list(map(json.loads, run("inspect", name, "--json").stdout.splitlines()))
    assert {one["pid"]: len(one["channels"]) for one in lines}[int(pid)] == 1
    assert [one["worker"] for one in lines] == [0, 1]


def test_it_runs_in_the_background_until_stop(where, name, monkeypatch):
    monkeypatch.chdir(where)
    more = ["--workers", "2", "--background", "--channels", "4"]
    done = run("serve", name, "--python", "models:pid", *more, cwd=where)
    assert done.returncode == 0 and "with 2 workers" in done.stdout, done.stderr
    pids = living(name)
    assert len(pids) == 2  # it returns when all workers answer
    os.kill(pids[1], signal.SIGKILL)
    until(lambda: living(name).get(1, pids[1]) != pids[1])
    done = run("stop", name)
    assert done.returncode == 0 and not list(SHM.glob(f"shmb.{name}*")), done.stderr
    log = (where / "state" / "shmbridge" / f"{name}.log").read_text()
    assert "starting another" in log


@pytest.mark.parametrize(
    "where_to, more, expected",
    [
        ("pipe:///tmp/p", [], "expected shm://NAME"),
        ("grpc://127.0.0.1:1", [], "expected shm://NAME"),
        ("x", ["--record", "log"], "--record"),
        ("x", ["--until-idle", 1], "--until-idle"),
        ("x?until_idle=1", [], "--until-idle"),
    ],
)
def test_what_workers_cannot_do_is_said(where, where_to, more, expected):
    command = ["serve", where_to, "--python", "models:pid", "--workers", 2, *more]
    assert expected in refused(2, *command, cwd=where)

"""serve --background and stop: the command returns when the name stands, or says why it does not,
and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import cli
from support.cli import SHMBRIDGE
from support.processes import alive, until

import shmbridge

SMALL = ("--channels", "4", "--request-bytes", "64K")
MODELS = """
import os, signal, time
from pathlib import Path
print("loading")
def double(request):
    print("asked")
    return float(request["x"] * 2)
def deaf(request):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    return 0
"""


@pytest.fixture
def where(tmp_path, monkeypatch, name):
    """A directory that has models.py; what runs in the background keeps its files in its folder
    `state`, and is ended first."""
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for file in (tmp_path / "state").glob("shmbridge/*.log"):
        run("stop", file.stem)


def run(*words):
    return cli.run(*words, cwd=".")


def serve(name, *words):
    """What it says."""
    done = run("serve", name, *SMALL, "--background", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(where):
    return sorted(file.name for file in where.glob("state/shmbridge/*"))


def test_it_returns_when_the_name_stands_and_stop_ends_it(where, name):
    said = serve(name, "--python", "models:double")
    assert f"shm://{name}" in said and f"shmbridge stop {name}" in said and "Ctrl-C" not in said
    log = where / "state" / "shmbridge" / f"{name}.log"
    assert str(log) in said
    with shmbridge.connect(f"{name}?connect_timeout=0") as runner:
        assert runner.evaluate({"x": np.float32(4)}) == 8
    assert "asked" in log.read_text()
    done = run("stop", name)
    assert done.returncode == 0 and "1 requests, 0 errors" in log.read_text()
    assert not Path("/dev/shm", f"shmb.{name}").exists()
    done = run("stop", name)
    assert done.returncode == 1 and done.stderr.startswith("Error: ") and name in done.stderr
    assert files(where) == [log.name]


@pytest.mark.parametrize(
    ("model", "more", "why"),
    [
        ("models:nothing", [], "nothing"),
        ("killed:f", [], "SIGKILL"),
        ("models:double", ["--request-bytes", "64G"], "/dev/shm"),
    ],
)
def test_a_host_that_does_not_start_says_why_and_leaves_nothing(where, name, model, more, why):
    (where / "killed.py").write_text("import os; os.kill(os.getpid(), 9)")
    done = run("serve", name, "--python", model, "--background", *more)
    assert done.returncode == 1 and "Error: " in done.stderr and why in done.stderr
    assert "Traceback" not in done.stderr and not files(where)


def test_a_name_in_use_is_said_and_its_host_stays(where, name):
    serve(name, "--python", "models:double")
    done = run("serve", name, "--python", "models:double", "--background")
    assert done.returncode == 1 and "choose another name" in done.stderr
    with shmbridge.connect(name) as runner:
        assert runner.evaluate({"x": np.float32(1)}) == 2
    assert run("stop", name).returncode == 0


def test_no_folder_for_its_log_is_said(where, name):
    (where / "state").write_text("a file")
    done = run("serve", name, "--python", "models:double", "--background")
    assert done.returncode == 1 and "XDG_STATE_HOME" in done.stderr


def test_it_survives_the_shell_that_started_it_and_holds_none_of_its_pipes(where, name):
    reader, writer = os.pipe()
    line = (
        f"{sys.executable} -m shmbridge.cli serve {name} --python models:double --background "
        ">said; exec sleep 60"
    )
    shell = subprocess.Popen(["sh", "-c", line], start_new_session=True, pass_fds=[writer])
    os.close(writer)
    until(
        lambda: (
            shell.poll() is None and "Python" in (where / "said").read_text()
            if (where / "said").exists()
            else False
        )
    )
    os.killpg(shell.pid, signal.SIGHUP)
    shell.wait(10)
    assert os.read(reader, 1) == b""  # nobody has the other end
    os.close(reader)
    with shmbridge.connect(f"{name}?connect_timeout=0") as runner:
        assert runner.evaluate({"x": np.float32(1)}) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None], ids=str)
def test_a_signal_or_stop_while_the_model_loads_ends_the_host_too(where, name, number):
    (where / "late.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
        # in steps, as a wait may miss a signal that comes as it begins
        "while True: time.sleep(0.05)"
    )
    command = [*SHMBRIDGE, "serve", name, "--python", "late:f", "--background"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until(lambda: (where / "pid").exists() and (where / "pid").read_text() != "")
    assert int((where / "pid").read_text()) != process.pid
    if number:
        process.send_signal(number)
    else:
        assert run("stop", name).stdout == f"stopped {name}\n"  # its log goes, too
    said, _ = process.communicate(timeout=30)
    assert process.returncode != 0 and b"Aborted" not in said
    until(lambda: not alive(int((where / "pid").read_text())))
    assert not files(where)


def test_stop_ends_a_host_that_ignores_signals(where, name):
    serve(name, "--python", "models:deaf")
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": np.float32(1)})
        done = run("stop", name)
    assert done.returncode == 0, done.stderr


def test_a_second_host_is_refused_though_the_first_ones_name_was_removed(where, name):
    serve(name, "--python", "models:double")
    with shmbridge.connect(name):  # for which the host goes on
        Path("/dev/shm", f"shmb.{name}").unlink()  # as systemd's RemoveIPC does
        done = run("serve", name, "--python", "models:double", "--background")
        assert done.returncode == 1 and f"shmbridge stop {name}" in done.stderr
        assert run("stop", name).returncode == 0


def test_a_child_that_the_model_leaves_is_not_the_host(where, name):
    (where / "forks.py").write_text(
        "import os, time\nif os.fork() == 0: time.sleep(30); os._exit(0)"
    )
    (where / "models.py").write_text(f"import forks\n{MODELS}")
    serve(name, "--python", "models:double")
    assert run("stop", name).returncode == 0
    done = run("stop", name)
    assert done.returncode == 1 and "no host runs" in done.stderr


def test_a_socket_of_another_user_is_not_taken_for_a_host(where, name):
    squat = (
        "import os, socket, sys; from shmbridge.cli._background import _address as address;"
        "at = address(sys.argv[1]); os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
        "s.bind(at); s.listen(); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", squat, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        done = run("stop", name)
        other.stdin.close()
        assert other.wait(10) == 0
    assert done.returncode == 1 and "belongs to user 65534" in done.stderr


@pytest.mark.parametrize("state", ["relative", ""])
def test_a_relative_state_folder_does_not_count(where, name, state, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", str(where))
    assert f"{where}/.local/state/shmbridge/{name}.log" in serve(name, "--python", "models:double")
    done = run("stop", name)
    assert done.returncode == 0 and f"{where}/.local/state/shmbridge/{name}.log" in done.stdout
    assert not (where / "relative").exists()


def test_hosts_at_other_urls_and_relays(where, name):
    url = f"pipe://{where}/p?serdes=json"
    serve(name, "--python", "models:double")
    done = run("relay", f"{name}-near", f"shm://{name}", "--background")
    assert done.returncode == 0 and f"shmbridge stop {name}-near" in done.stdout, done.stderr
    with shmbridge.connect(f"{name}-near?connect_timeout=0") as runner:
        assert runner.evaluate({"x": np.float32(4)}) == 8
    done = run("serve", url, "--python", "models:double", "--background")
    assert done.returncode == 0 and f"shmbridge stop pipe://{where}/p" in done.stdout, done.stderr
    assert run("stop", f"pipe://{where}/p").returncode == 0
    assert run("stop", f"{name}-near").returncode == 0

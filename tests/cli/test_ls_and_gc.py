"""shmbridge ls and gc."""

import json
import os
import signal
import subprocess
import threading

from support.cli import SHMBRIDGE, X, evaluate, refused, run

import shmbridge


def listed(name, interval):
    shown = json.loads(run("ls", "--json", "--interval", interval).stdout)
    (found,) = [bridge for bridge in shown if bridge["name"] == name]
    return found


def test_ls_shows_bridges_channels_and_rates(serve, name):
    serving = serve(name, "--python", "models:total")
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": X})
        said = run("ls", "--interval", 0.1).stdout
        assert (
            f"shm://{name}" in said and "alive" in said and "1 of 4" in said and "channel 0" in said
        )
        shown = listed(name, 0.1)
    assert (shown["alive"], shown["pid"]) == (True, serving.pid)
    assert (shown["served"], shown["rate"]) == (1, 0)
    states = [channel["state"] for channel in shown["channels"]]
    assert states == ["attached", "free", "free", "free"]
    assert shown["channels"][0]["pid"] == os.getpid()


def test_ls_measures_the_rate(serve, name, in_thread):
    serve(name, "--python", "models:total")
    done = threading.Event()

    def ask():
        with shmbridge.connect(name) as runner:
            while not done.is_set():
                runner.evaluate({"x": X})

    asking = in_thread(ask)
    shown = listed(name, 0.5)
    done.set()
    asking.result()
    assert shown["rate"] > 0 and shown["channels"][0]["rate"] > 0


def test_ls_watch_goes_on_until_ctrl_c(serve, name):
    serve(name, "--python", "models:total")
    watch = [*SHMBRIDGE, "ls", "--watch", "--json", "--interval", "0.1"]
    process = subprocess.Popen(
        watch, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert all(name in process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 0


def test_gc_removes_what_a_killed_host_left_and_says_what(serve, name):
    serving = serve(name, "--python", "models:total")
    living = serve(f"{name}-living", "--python", "models:total")
    serving.kill()
    serving.wait()
    shown = listed(name, 0.1)
    assert not shown["alive"]
    assert "live host" in refused(1, "gc", f"{name}-living")
    said = run("gc", name).stdout
    assert f"removed /dev/shm/shmb.{name}\n" in said
    assert not [
        file for file in os.listdir("/dev/shm") if name == file[5:] or shown["session"] in file
    ]
    assert evaluate(f"{name}-living", x=X) == 6.0
    living.end()

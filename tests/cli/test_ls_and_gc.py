"""shmbridge ls and gc."""

import json
import os

from support.cli import X, evaluate, refused, run

import shmbridge


def listed(name):
    return json.loads(run("inspect", name, "--json").stdout)


def test_ls_shows_bridges_and_channels(serve, name):
    serving = serve(name, "--python", "models:total")
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": X})
        said = run("ls").stdout
        assert (
            f"shm://{name}" in said and "alive" in said and "1 of 4" in said and "channel 0" in said
        )
        shown = listed(name)
    assert (shown["alive"], shown["pid"], shown["served"]) == (True, serving.pid, 1)
    assert shown["capacity"] == 4
    assert [(each["state"], each["pid"]) for each in shown["channels"]] == [
        ("attached", os.getpid())
    ]


def test_gc_removes_what_a_killed_host_left_and_says_what(serve, name):
    serving = serve(name, "--python", "models:total")
    living = serve(f"{name}-living", "--python", "models:total")
    serving.kill()
    serving.wait()
    shown = listed(name)
    assert not shown["alive"]
    assert "live host" in refused(1, "gc", f"{name}-living")
    said = run("gc", name).stdout
    assert f"removed /dev/shm/shmb.{name}\n" in said
    assert not [
        file for file in os.listdir("/dev/shm") if name == file[5:] or shown["session"] in file
    ]
    assert evaluate(f"{name}-living", x=X) == 6.0
    living.end()

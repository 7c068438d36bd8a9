"""bench/compilers/compilation.py: one compiler that replays recorded gaps."""

import os
import runpy
import subprocess
import sysconfig
import threading
from pathlib import Path

import numpy as np

import shmbridge

ROOT = Path(__file__).parents[2]
COMPILERS = ROOT / "bench/compilers"
COUNT = 40


def question(number):
    """compilation.c's features, by their places."""
    return [(number * 31 + i * 17) % 64 - 32 for i in range(38)]


def test_a_replayed_compilation_receives_the_policys_advice(tmp_path, monkeypatch):
    for folder in (ROOT / "bench", ROOT / "bench/transport", ROOT / "bench/pages", COMPILERS):
        monkeypatch.syspath_prepend(folder)
    import compilation

    program = tmp_path / "compilation"
    command = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
    flags = subprocess.check_output([command, "config", "--cflags", "--libs"], text=True).split()
    sources = [COMPILERS / "compilation.c", COMPILERS / "compilation_ask.c"]
    subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", *sources, *flags, "-o", program], check=True)
    policy = runpy.run_path(str(compilation.INLINER / "policy.py"))["advise"]
    names, name = compilation.feature_names(), f"compilation-{os.getpid()}"
    with shmbridge.Host(name) as host:
        serving = threading.Thread(target=host.serve, args=(policy,))
        serving.start()
        way = compilation.Way("shm", program, f"shm://{name}")
        one = compilation.cell(way, compilation.recorded_gaps(tmp_path), "1", 1, 7, COUNT)
    serving.join()
    values = [dict(zip(names, map(np.int64, question(i)), strict=True)) for i in range(COUNT)]
    assert one["advice"] == [sum(policy(each) for each in values)]
    assert 0 < one["advice"][0] < COUNT
    assert 0 < one["p50"] <= one["p99"] <= one["wall"]

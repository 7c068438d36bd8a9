"""Runners ask a host for an hour: its memory and descriptors do not grow. --long --minutes 60."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

RUNNERS, SAMPLES = 8, 60
URL = "shm://{}?deadline=inf&connect_timeout=600"  # a stopped machine is no failure
HOST = """
    import sys, shmbridge
    with shmbridge.Host(sys.argv[1], channels=8) as host:
        print("made", flush=True)
        host.serve(lambda request: request["x"].sum())
"""
RUNNER = """
    import sys, time
    import numpy as np
    import shmbridge

    until, each = time.monotonic() + float(sys.argv[2]), float(sys.argv[3])
    took, sample, number = [], time.monotonic() + each, 0
    while time.monotonic() < until:  # now and then a new runner, and another layout
        with shmbridge.connect(sys.argv[1]) as runner:
            for i in range(20000):
                x = np.ones(1 + i % 500, np.float32)
                began = time.perf_counter()
                assert runner.evaluate({"x": x}) == x.size
                took.append(time.perf_counter() - began)
                if time.monotonic() > sample:
                    parts = np.percentile(took, [50, 99, 99.9]) * 1e6
                    print(number, len(took), *parts, flush=True)
                    took, sample, number = [], sample + each, number + 1
                    if time.monotonic() > until:
                        break
"""


@pytest.mark.timeout(0)
def test_a_host_does_not_grow(name, python, request, long, record):
    seconds = 60 * request.config.getoption("--minutes") if long else 2
    samples = SAMPLES if long else 4
    host = python(HOST, name)
    assert host.line() == "made"
    times = seconds, seconds / samples
    asking = [python(RUNNER, URL.format(name), *times) for _ in range(RUNNERS)]
    found, folder, began = [], Path(f"/proc/{host.pid}"), time.monotonic()
    page_kb = os.sysconf("SC_PAGE_SIZE") // 1024
    for _ in range(1, samples):
        rows = np.array([[float(n) for n in each.line().split()] for each in asking])
        sample = {"seconds": round(time.monotonic() - began), "questions": int(rows[:, 1].sum())}
        sample["questions"] += found[-1]["questions"] if found else 0
        sample["rss_kb"] = int((folder / "statm").read_text().split()[1]) * page_kb
        sample["descriptors"] = len(list((folder / "fd").iterdir()))
        for at, key in enumerate(("p50_us", "p99_us", "p99.9_us"), 2):
            sample[key] = round(float(np.median(rows[:, at])), 1)
        found.append(sample)
    for each in asking:
        try:
            each.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            each.kill()
            raise
        assert each.returncode == 0
    host.send_signal(signal.SIGINT)
    assert host.end()[0] == 0
    warm = found[len(found) // 4]
    assert found[-1]["descriptors"] <= warm["descriptors"]
    assert found[-1]["rss_kb"] < 1.2 * warm["rss_kb"] + 4096
    if long:
        record("soak", minutes=seconds / 60, runners=RUNNERS, samples=found)

"""A checkpoint is whole whenever its writer is killed, and a training that resumes from it is the
one that was not killed."""

import itertools
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from shmbridge import InvalidError
from shmbridge.training import Corpus, checkpoint


def test_a_state_comes_back(tmp_path):
    path = tmp_path / "state"
    assert checkpoint.load(path) is None
    checkpoint.save(path, {"weights": np.arange(3.0), "done": 7})
    state = checkpoint.load(path)
    assert state["weights"].tolist() == [0, 1, 2] and state["done"] == 7
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_random_numbers_and_samplers_go_on_where_they_were(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name)
    sampler = Corpus.from_sources(*(tmp_path / name for name in "abc")).sampler(seed=3)
    random = np.random.default_rng(0)
    next(sampler), random.random()
    checkpoint.save(tmp_path / "state", (sampler, random))
    again, other = checkpoint.load(tmp_path / "state")
    assert [*itertools.islice(again, 7)] == [*itertools.islice(sampler, 7)]
    assert other.random() == random.random()


def test_what_cannot_be_kept_leaves_the_file_as_it_was(tmp_path):
    checkpoint.save(tmp_path / "state", 1)
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save(tmp_path / "state", lambda: 0)
    assert checkpoint.load(tmp_path / "state") == 1


def test_a_full_disk_leaves_the_state_before_and_no_part_of_the_new_one(tmp_path):
    checkpoint.save(tmp_path / "state", 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(OSError, match="File too large"):
            checkpoint.save(tmp_path / "state", bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoint.load(tmp_path / "state") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_file_of_something_else_is_an_error(tmp_path):
    (tmp_path / "state").write_text("text")
    with pytest.raises(InvalidError, match="expected what checkpoint.save wrote"):
        checkpoint.load(tmp_path / "state")


# Learns for 60 rounds by numbers at random, and keeps each round.
LEARNS = """
import sys, time
import numpy as np
from shmbridge.training import checkpoint
from shmbridge.training import Progress

path, log, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
state = checkpoint.load(path) or {
    "weights": np.zeros(2000), "random": np.random.default_rng(0), "done": 0, "rows": None}
with Progress(log, rows=state["rows"]) as progress:
    while state["done"] < 60:
        state["weights"] += state["random"].standard_normal(2000)
        progress.add(state["weights"][0])
        progress.log(last=state["weights"][-1])
        state["done"] += 1
        state["rows"] = progress.rows
        checkpoint.save(path, state)
        time.sleep(pause)
"""


def test_a_training_that_is_killed_again_and_again_ends_as_one_that_was_not(tmp_path):
    def start(name, pause):
        words = [sys.executable, "-P", "-c", LEARNS, tmp_path / name, tmp_path / f"{name}.csv"]
        return subprocess.Popen([*map(str, words), str(pause)])

    assert start("whole", 0).wait(60) == 0
    random, done = np.random.default_rng(1), 0
    for _ in range(3):
        process = start("killed", 0.003)
        until = time.monotonic() + 60
        while _done(tmp_path / "killed") < done + 10 and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(random.random() * 0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        done = checkpoint.load(tmp_path / "killed")["done"]
    assert 30 <= done < 60
    assert start("killed", 0).wait(60) == 0
    whole, killed = (checkpoint.load(tmp_path / name) for name in ("whole", "killed"))
    assert np.array_equal(whole["weights"], killed["weights"])
    logs = [(tmp_path / f"{name}.csv").read_text().splitlines() for name in ("whole", "killed")]
    first, second = ([line.split(",")[1:] for line in log] for log in logs)  # but for the seconds
    assert first == second


def _done(path):
    state = checkpoint.load(path)
    return state["done"] if state else 0

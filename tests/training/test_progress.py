"""What a training shows: rows of a CSV file, a bar in a terminal, TensorBoard's events."""

import csv
import math
import os
import pty
import subprocess
import sys
import types
from unittest.mock import MagicMock

import numpy as np
import pytest

from shmbridge import InvalidError
from shmbridge.training import Progress


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.csv"


def test_a_row_has_the_mean_reward_since_the_last_one_and_failures_by_kind(log):
    with Progress(log) as progress:
        progress.add(1.0)
        progress.add(2.0)
        progress.log(loss=0.5)
        progress.add(4.0)
        progress.add(math.nan, "signal")
        progress.log(loss=0.25, entropy=1)
        progress.log(loss=0)
    first, second, third = rows(log)
    assert (first["episodes"], first["reward"], first["signal"]) == ("2", "1.5", "")
    assert (second["episodes"], second["reward"], second["signal"]) == ("4", "4", "1")
    assert (second["loss"], second["entropy"], third["reward"]) == ("0.25", "1", "")
    assert float(second["seconds"]) >= float(first["seconds"])
    assert progress.failures == {"signal": 1}


def test_it_resumes_behind_the_rows_that_a_checkpoint_knows(log):
    with Progress(log) as progress:
        for reward in (1, 2, 3):
            progress.add(reward)
            progress.add(math.nan, "time limit")
            progress.log(loss=reward)
    with Progress(log, rows=2) as progress:
        assert (progress.episodes, progress.failures) == (4, {"time limit": 2})
        progress.add(9)
        progress.log(loss=9)
    assert [row["loss"] for row in rows(log)] == ["1", "2", "9"]
    assert rows(log)[-1]["episodes"] == "5" and rows(log)[-1]["time limit"] == "2"
    with pytest.raises(InvalidError, match="expected 7 rows or more, found 3"):
        Progress(log, rows=7)


def test_steps_of_a_vector_make_episodes():
    progress = Progress()
    no, yes = np.array([False, False]), np.array([True, False])
    progress.step(np.array([1.0, 5.0]), no, no, {})
    infos = {"kind": np.array(["ok", None], object), "_kind": yes}
    progress.step(np.array([2.0, 5.0]), yes, no, infos)
    assert progress.episodes == 1 and progress._rewards == [3.0]
    infos = {"kind": np.array(["signal", "ok"], object), "_kind": ~no}
    progress.step(np.array([0.0, 1.0]), ~yes, yes, {"final_info": infos, "_final_info": ~no})
    assert progress.failures == {"signal": 1} and progress._rewards[2] == 11.0


def test_steps_of_one_environment_and_of_stable_baselines_make_episodes():
    progress = Progress()
    progress.step(1.0, True, False, {"step": 1})
    progress.step(1.0, False, True, {"error": "the compiler died"})
    progress.step([2.0, 3.0], [True, True], False, [{"kind": "ok"}, {"kind": "no score"}])
    assert progress.failures == {"error": 1, "no score": 1} and progress.episodes == 4


SHOWN = """
from shmbridge.training import Progress
with Progress(total=3) as progress:
    progress.add(0.5)
    progress.add(float("nan"), "signal")
    progress.add(0.7)
"""


def test_a_terminal_shows_a_bar_with_reward_and_failures():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-P", "-c", SHOWN]
    subprocess.run(command, stderr=theirs, check=True, env=environment, timeout=60)
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 65536):
            said += more
    except OSError:  # the other side is closed
        os.close(ours)
    for text in (b"3/3", b"reward +0.600", b"signal 1"):
        assert text in said


def test_a_notebook_shows_a_bar(monkeypatch):
    shown = []
    notebook = types.ModuleType("IPython.display")
    notebook.display = shown.append
    widgets = types.ModuleType("ipywidgets")
    widgets.Output = MagicMock()
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with Progress(total=3) as progress:
        progress.add(0.5)
    assert shown[0] is widgets.Output() and any("1/3" in each.text for each in shown[1:])


def test_where_no_terminal_is_nothing_is_shown():
    command = [sys.executable, "-P", "-c", SHOWN]
    assert subprocess.run(command, capture_output=True, check=True, timeout=60).stderr == b""


def test_tensorboard_gets_every_row(tmp_path):
    pytest.importorskip("tensorboard", reason="it reads the events")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Progress(tensorboard=tmp_path / "events") as progress:
        progress.add(2.0)
        progress.log(loss=0.5)
        progress.add(3.0)
        progress.log(loss=0.25)
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 0.5), (2, 0.25)]
    assert [event.value for event in events.Scalars("reward")] == [2.0, 3.0]


def test_a_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ImportError, match=r"shmbridge\[progress\]"):
        Progress(tensorboard=tmp_path)

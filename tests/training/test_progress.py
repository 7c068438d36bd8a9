"""What a training shows: rows of a CSV file, a bar in a terminal, TensorBoard's curves."""

import csv
import math
import os
import pty
import subprocess
import sys
import types
from unittest.mock import MagicMock, call

import pytest

from shmbridge.training import Progress


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.csv"


def test_a_row_has_the_mean_reward_since_the_last_one_and_the_failures(log):
    with Progress(log) as progress:
        progress.add(1.0)
        progress.add(2.0)
        progress.log(loss=0.5)
        progress.add(4.0)
        progress.add(math.nan, "signal")
        progress.log(loss=0.25, entropy=1)
        progress.log(loss=0)
    first, second, third = rows(log)
    assert (first["episodes"], first["reward"], first["failures"]) == ("2", "1.5", "0")
    assert (second["episodes"], second["reward"], second["failures"]) == ("4", "4.0", "1")
    assert (first["entropy"], second["entropy"], third["reward"]) == ("", "1", "nan")
    assert float(second["seconds"]) >= float(first["seconds"])
    assert progress.failures == {"signal": 1}


def test_it_continues_with_the_rows_of_an_earlier_run(log):
    with Progress(log) as progress:
        for reward in (1, 2, 3):
            progress.add(reward)
            progress.add(math.nan, "time limit")
            progress.log(loss=reward)
    with Progress(log, rows=progress.rows[:2]) as again:
        assert again.episodes == 4
        again.add(9, "signal")
        again.log(loss=9)
    found = rows(log)
    assert [row["loss"] for row in found] == ["1", "2", "9"]
    assert (found[-1]["episodes"], found[-1]["failures"]) == ("5", "3")
    assert float(found[-1]["seconds"]) >= float(found[1]["seconds"])


def test_a_file_that_cannot_be_written_leaves_the_one_before(log, monkeypatch):
    def full(_):
        raise OSError

    with Progress(log) as progress:
        progress.log(loss=1)
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError):
            progress.log(loss=2)
    assert [row["loss"] for row in rows(log)] == ["1"] and os.listdir(log.parent) == [log.name]


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


def test_tensorboard_gets_every_row():
    writer = MagicMock()
    with Progress(tensorboard=writer) as progress:
        progress.add(2.0)
        progress.log(loss=0.5)
        progress.add(3.0)
        progress.log(loss=0.25)
    told = writer.add_scalar.call_args_list
    assert [each for each in told if each.args[0] in ("loss", "reward")] == [
        call("reward", 2.0, 1),
        call("loss", 0.5, 1),
        call("reward", 3.0, 2),
        call("loss", 0.25, 2),
    ]

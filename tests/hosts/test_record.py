"""The commands record, and serve --record."""

import signal
from pathlib import Path

import numpy as np
import pytest
from support.cli import run
from support.recording import X, records

import shmbridge
from shmbridge.logs import TrainingLog

TOTALS = [({"x": X * i}, 7.0 * i) for i in range(4)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_record_until_a_signal(command, serving, name, new_name, path, number):
    serving("total")
    listen = new_name()
    recording = command("recording", "record", f"shm://{name}", f"shm://{listen}", path)
    with shmbridge.connect(listen, label="a.c") as runner:
        assert [runner.evaluate(question) for question, _ in TOTALS] == [
            advice for _, advice in TOTALS
        ]
        assert (
            f"4 questions passed on, 0 answered with an error; 4 recorded, 0 left out: {path}"
            in recording.end(number)
        )
        with pytest.raises(shmbridge.ClosedError):
            runner.evaluate({"x": X})
    assert [(question["x"].tolist(), advice.item()) for question, advice in records(path)] == [
        (question["x"].tolist(), advice) for question, advice in TOTALS
    ]
    assert {record.label for record in TrainingLog(path)} == {"a.c"}
    assert not Path(f"/dev/shm/shmb.{listen}").exists()


def test_record_ends_while_a_question_is_under_way(name, new_name, command, path, in_thread):
    listen = new_name()
    with shmbridge.Host(name) as host:
        claims = in_thread(host.receive, 20)
        recording = command("recording", "record", name, listen, path)
        with shmbridge.connect(listen) as runner:
            asked = in_thread(runner.evaluate, {"x": 1})
            claims.result()
            assert "0 recorded" in recording.end()
            with pytest.raises(shmbridge.ClosedError):
                asked.result()
    assert not path.exists()


def test_record_needs_a_target(name, path):
    done = run("record", f"shm://{name}?connect_timeout=0.01", "elsewhere", path)
    assert done.returncode == 1 and name in done.stderr
    assert not path.exists()


@pytest.mark.parametrize("more", [(), ("--max-batch", 4)])
def test_serve_records(serving, name, path, more):
    service = serving("totals" if more else "total", "--record", path, *more)
    with shmbridge.connect(name, label="a.c") as runner:
        for question, advice in TOTALS:
            assert runner.evaluate(question, dtype=np.float64) == advice
    service.end()
    assert [advice.item() for _, advice in records(path)] == [advice for _, advice in TOTALS]
    assert {record.label for record in TrainingLog(path)} == {"a.c"}

"""The commands record and replay."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli import run
from support.recording import X, records

import shmbridge
from shmbridge.logs import LogWriter, TrainingLog


def log_of(path: Path, *records: tuple[dict[str, Any], Any]) -> Path:
    with LogWriter(path) as log:
        for features, advice in records:
            log.write(features, advice)
    return path


TOTALS = [({"x": X * i}, 7.0 * i) for i in range(4)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_record_until_a_signal(
    command: Any, serving: Any, name: str, new_name: Any, path: Path, number: int
) -> None:
    serving("total")
    listen = new_name()
    recording = command("recording", "record", f"shm://{name}", f"shm://{listen}", path)
    with shmbridge.connect(listen, label="a.c") as runner:
        assert [runner.evaluate(question) for question, _ in TOTALS] == [
            advice for _, advice in TOTALS
        ]
        assert f"4 recorded, 0 left out, 0 errors passed on: {path}" in recording.end(number)
        with pytest.raises(shmbridge.ClosedError):
            runner.evaluate({"x": X})
    assert [(question["x"].tolist(), advice.item()) for question, advice in records(path)] == [
        (question["x"].tolist(), advice) for question, advice in TOTALS
    ]
    assert {record.label for record in TrainingLog(path)} == {"a.c"}
    assert not Path(f"/dev/shm/shmb.{listen}").exists()


def test_record_ends_while_a_question_is_under_way(
    name: str, new_name: Any, command: Any, path: Path, in_thread: Any
) -> None:
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


def test_record_needs_a_target(name: str, path: Path) -> None:
    done = run("record", f"shm://{name}?connect_timeout=0.01", "elsewhere", path)
    assert done.returncode == 1 and name in done.stderr
    assert not path.exists()


@pytest.mark.parametrize("more", [(), ("--max-batch", 4)])
def test_serve_records(serving: Any, name: str, path: Path, more: Any) -> None:
    service = serving("totals" if more else "total", "--record", path, *more)
    with shmbridge.connect(name, label="a.c") as runner:
        for question, advice in TOTALS:
            assert runner.evaluate(question, dtype=np.float64) == advice
    service.end()
    assert [advice.item() for _, advice in records(path)] == [advice for _, advice in TOTALS]
    assert {record.label for record in TrainingLog(path)} == {"a.c"}


def test_replay_finds_the_same_advice(serving: Any, name: str, path: Path) -> None:
    serving("total")
    done = run("replay", log_of(path, *TOTALS), name, "--check")
    assert done.returncode == 0, done.stdout
    assert "4 questions: the same advice for 4, different for 0, errors for 0" in done.stdout
    assert "median" in done.stdout


def test_replay_counts_what_differs(serving: Any, name: str, path: Path) -> None:
    serving("shifted")
    log_of(path, *TOTALS, ({"x": X.astype(np.float64)}, 7.0))
    more = [path, path.with_name(f"{path.name}.2")]
    done = run("replay", *more, name)
    assert done.returncode == 0
    assert (
        "5 questions: the same advice for 3, different for 2, errors for 0; the largest "
        "difference is 0.25" in done.stdout
    )
    assert run("replay", *more, f"shm://{name}", "--check").returncode == 1


def test_replay_plays_a_log_of_clangs(serving: Any, name: str, path: Path) -> None:
    def spec(feature: str, kind: str) -> dict[str, Any]:
        return {"name": feature, "type": kind, "port": 0, "shape": [1]}

    features = [
        spec("callees", "int64_t"),
        spec("hot", "float"),
        spec("inlining_decision", "int64_t"),
    ]
    lines = [
        json.dumps({"features": features, "score": spec("reward", "float")}).encode(),
        b'{"context":"default"}',
    ]
    for i, (callees, advice) in enumerate([(5, 0), (6, 1), (4, 1), (7, 1)]):
        lines += [b'{"observation":%d}' % i, struct.pack("=qfq", callees, 0.5, advice)]
        lines += [b'{"outcome":%d}' % i, struct.pack("=f", 0)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    serving("inline")
    done = run("replay", path, name, "--check")
    assert done.returncode == 1
    assert ": ValueError: too many callees" in done.stdout
    assert "4 questions: the same advice for 2, different for 1, errors for 1" in done.stdout


def test_replay_asks_what_llvm_wrote_to_a_channel(serving: Any, name: str, path: Path) -> None:
    path.write_bytes(
        b'{"features":[{"name":"x","type":"float","port":0,"shape":[1]}],"advice":{"name":"d",'
        b'"type":"double","port":0,"shape":[1]}}\n'
        b'{"context":"f"}\n{"observation":0}\n' + struct.pack("=f", 2) + b"\n"
    )
    serving("total")
    done = run("replay", path, name, "--check")
    assert done.returncode == 0 and "nothing to compare with for 1" in done.stdout


def test_replay_says_what_is_cut_off(serving: Any, name: str, path: Path) -> None:
    serving("total")
    log_of(path, *TOTALS)
    os.truncate(path, path.stat().st_size - 1)
    done = run("replay", path, name, "--check")
    assert done.returncode == 0 and "cut off" in done.stderr and "3 questions" in done.stdout


def test_replay_needs_a_log_and_a_host(name: str, path: Path) -> None:
    path.write_text("no log\n")
    assert "expected a line of JSON" in run("replay", path, name).stderr
    path.unlink()
    done = run("replay", log_of(path, *TOTALS), f"{name}?connect_timeout=0.01")
    assert done.returncode == 1 and name in done.stderr


def test_replay_compares_what_record_kept_of_every_dtype(
    serve: Any, name: str, tap: Any, path: Path
) -> None:
    """Advice of every dtype and of several fields, NaN included."""
    advice = [
        np.float32(0.1),
        np.array([np.nan, 1], np.float16),
        np.bool_(True),
        np.uint64(2**64 - 1),
        -1,
        {"a": 1, "b": np.zeros(2)},
    ]
    with (
        serve(lambda request: advice[int(request["i"])]),
        shmbridge.connect((tapped := tap()).host.url) as runner,
    ):
        for i in range(len(advice)):
            runner.evaluate({"i": i})
        while tapped.log.recorded < len(advice):  # which is behind the reply
            time.sleep(0.01)
        done = run("replay", *tapped.log.paths, name, "--check")
    assert done.returncode == 0, done.stdout
    assert f"the same advice for {len(advice)}," in done.stdout

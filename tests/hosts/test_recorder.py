"""A relay with a log: what passes through is what was said, and is recorded."""

import shutil
import subprocess
import time

import numpy as np
import pytest
from support.processes import until
from support.recording import X, records

import shmbridge
from shmbridge._native import lib
from shmbridge.hosts._relay import Relay
from shmbridge.logs import LogWriter, TrainingLog


def test_a_tap_passes_on_and_records(serve, tap, path):
    with (
        serve(lambda request: float(request["x"].sum())),
        shmbridge.connect((tapped := tap()).host.url) as runner,
    ):
        for i in range(3):
            assert runner.evaluate({"x": X * i, "context": "main"}) == 7 * i
        until(lambda: tapped.log.recorded == 3)  # which is behind the reply
    found = records(path)
    assert [question["context"] for question, _ in found] == 3 * ["main"]
    assert [(question["x"].tolist(), advice.item()) for question, advice in found] == [
        ((X * i).tolist(), 7 * i) for i in range(3)
    ]


def test_wanted_dtypes_reach_the_host(serve, tap, path):
    wanted = []

    def model(request):
        wanted.append(request.wanted)
        return 3

    with serve(model), shmbridge.connect((tapped := tap()).host.url) as runner:
        assert runner.evaluate({"x": X}, dtype=np.float32) == 3
        assert runner.evaluate({"x": X}) == 3
        until(lambda: tapped.log.recorded == 2)
    assert wanted == [np.float32, None]
    assert [
        advice.dtype
        for log in (path, path.with_name(f"{path.name}.2"))
        for _, advice in records(log)
    ] == [np.float32, np.int64]


def test_advice_that_its_runner_got_as_an_error_is_not_recorded(serve, tap, path):
    with (
        serve(lambda request: np.zeros(int(request["n"]))),
        shmbridge.connect(tap(advice_bytes=4096).host.url) as runner,
    ):
        with pytest.raises(shmbridge.TooLargeError):
            runner.evaluate({"n": 1000})
        assert runner.evaluate({"n": 2}).tolist() == [0, 0]
        runner.evaluate({"n": 1})  # when it is answered the one before is in the log
    assert [question["n"] for question, _ in records(path)][:1] == [2]


def test_runners_do_not_wait_for_each_other(name, tap, in_thread):
    with shmbridge.Host(name) as host:
        # Answers the tap's first runner, then takes a question.
        claims = in_thread(host.receive, 20)
        url = tap().host.url

        def ask(value):
            with shmbridge.connect(url) as runner:
                return runner.evaluate({"x": value})

        asked = [in_thread(ask, value) for value in (1, 2)]
        together = [claims.result(), host.receive(20)]  # both are under way before one is answered
        for request in together:
            request.reply(int(request["x"]) * 10)
        assert [call.result() for call in asked] == [10, 20]


def test_many_runners_get_their_own_advice_and_are_recorded(serve, tap, in_thread, path):
    url = None

    def ask(first):
        with shmbridge.connect(url) as runner:
            for i in range(first, first + 100):
                assert runner.evaluate({"i": i}) == -i

    with serve(lambda request: -int(request["i"])):
        tapped = tap()
        url = tapped.host.url
        for call in [in_thread(ask, 100 * n) for n in range(8)]:
            call.result()
        until(lambda: tapped.log.recorded == 800)
    assert sorted((int(q["i"]), -int(advice)) for q, advice in records(path)) == [
        (i, i) for i in range(800)
    ]


def test_runners_that_give_up_again_and_again_get_no_advice_of_another_question(serve, tap):
    def model(request):
        time.sleep(0.003 * (int(request["i"]) % 3))
        return -int(request["i"])

    given_up = 0
    with serve(model), shmbridge.connect(tap().host.url) as runner:
        runner.set_deadline(0.004)
        for i in range(200):
            try:
                assert runner.evaluate({"i": i}) == -i
            except shmbridge.DeadlineError:
                given_up += 1
        runner.set_deadline(20)
        assert runner.evaluate({"i": 7}) == -7
    assert given_up


def test_the_targets_deadline_is_an_error_of_the_question(name, tap, in_thread):
    with shmbridge.Host(name) as host:
        claims = in_thread(host.receive, 20)
        with shmbridge.connect(tap(f"{name}?deadline=0.5").host.url) as runner:
            with pytest.raises(shmbridge.DeadlineError, match="0.5 s"):
                runner.evaluate({"x": 1})
            claims.result()


def test_its_runners_have_as_long_as_the_target_says(name, tap, in_thread):
    with shmbridge.Host(name, deadline=60) as host:
        serving = in_thread(host.serve, lambda request: 1)
        with shmbridge.connect(tap(name).host.url) as runner:
            assert lib.shmb_runner_deadline(runner._r) == 60
        host.close()
        serving.result()


def test_what_cannot_be_recorded_is_passed_on(serve, tap):
    tapping = pytest.warns(UserWarning, match="not recorded")
    with (
        serve(lambda request: "inline"),
        shmbridge.connect((tapped := tap()).host.url) as runner,
        tapping,
    ):
        assert runner.evaluate({"x": X}) == "inline"
        until(lambda: tapped.log.left_out)
    assert (tapped.log.recorded, tapped.log.left_out) == (0, 1)


def test_the_target_has_no_runners_when_the_tap_has_none(serve, tap):
    with serve(lambda request: 1) as host:
        with shmbridge.connect(tap().host.url) as runner:
            runner.evaluate({"x": 1})
            assert host.runners == 1
        until(lambda: host.runners == 0)


def test_what_clang_asks_is_recorded_and_can_be_asked_again(serve, name, tmp_path, path, in_thread):
    clang = shutil.which("clang-22") or shutil.which("clang-19")
    if clang is None:
        pytest.skip("no clang-22 or clang-19")
    source = tmp_path / "two.c"
    source.write_text(
        "int first(int a, int b) { return a * b + a; }\nint second(int *p) { return first(p[0], "
        "p[1]) - 1; }\n"
    )
    with serve(lambda request: float(request["li_size"].sum())):
        with LogWriter(path) as log, Relay(name, f"llvm://{tmp_path}/tap", log=log) as tapped:
            in_thread(tapped.serve)
            flags = tapped.host.flags(clang, "priority")  # type: ignore[attr-defined]
            subprocess.run(
                [clang, "-O1", "-c", source, "-o", tmp_path / "two.o", *flags],
                check=True,
                timeout=60,
            )
        found = list(TrainingLog(path))
        assert {record.context for record in found} == {"first", "second"}
        assert all(
            record.layout.decision == "priority" and record.advice["priority"].dtype == np.float32
            for record in found
        )
        assert all(
            record.advice["priority"] == record.features["li_size"].sum() for record in found
        )
        with shmbridge.connect(name) as runner:
            for record in found:
                assert runner.evaluate(record.question) == record.advice["priority"]


def test_a_tap_has_the_room_that_its_target_has(serve, tap):
    with (
        serve(lambda request: request["x"], request_bytes=3 << 20, advice_bytes=3 << 20),
        shmbridge.connect(tap().host.url) as runner,
    ):
        large = np.arange(1 << 18)
        assert np.array_equal(runner.evaluate({"x": large}), large)

"""What a host does besides answering: errors with their tracebacks, logs, records."""

import numpy as np
import pytest
from support.requests import evaluating

import shmbridge
from shmbridge import Host, ModelError, TooLargeError, connect
from shmbridge.logs import LogWriter, TrainingLog


def recorded(path):
    return [(record.question, record.advice) for record in TrainingLog(path)]


# ---- Errors ----


def broken(request):
    if request["x"] == 0:
        raise ValueError("zero")
    if request["x"] == 1:
        raise AssertionError
    return 1


def test_a_model_that_raises_is_logged_with_its_traceback_once_for_each_kind(serve, caplog):
    with serve(broken) as host, connect(host.url) as runner:
        for x in (0, 0, 1, 0, 1):
            with pytest.raises(ModelError):
                runner.evaluate({"x": x})
        assert runner.evaluate({"x": 2}) == 1
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("shmbridge", "ERROR")
    ] * 2
    assert [record.exc_info[0] for record in caplog.records] == [ValueError, AssertionError]
    assert (
        'raise ValueError("zero")' in caplog.text
        and "ValueError: zero" in caplog.records[0].message
    )


@pytest.mark.parametrize(
    "model, says",
    [
        (lambda request: int(request["mode"][0]), r"IndexError: too many indices"),
        (lambda request: np.linalg.inv(request["mode"]), r"LinAlgError: 0-dim"),
    ],
    ids=["numpy's C code", "numpy's Python code"],
)
def test_an_error_shows_the_line_of_the_model(serve, caplog, model, says):
    line = rf'^test_service.py:\d+: {says}.*, in: .*request\["mode"\]'
    with serve(model) as host, connect(host.url) as runner, pytest.raises(ModelError, match=line):
        runner.evaluate({"mode": 3})
    assert 'request["mode"]' in caplog.records[0].message


def test_without_any_logging_set_up_the_traceback_goes_to_stderr(name, tmp_path, python):
    code = """
        import sys, threading, shmbridge
        def model(request):
            return 1 / 0
        with shmbridge.Host(sys.argv[1]) as host:
            threading.Thread(target=host.serve, args=(model,)).start()
            for _ in range(2):
                try:
                    shmbridge.connect(sys.argv[1]).evaluate({})
                except shmbridge.ModelError:
                    pass
    """
    with (tmp_path / "stderr").open("w") as stderr:
        assert python(code, name, stderr=stderr).end() == (0, "")
    said = (tmp_path / "stderr").read_text()
    assert (
        said.count("Traceback") == 1
        and "in model" in said
        and said.count("sent to the runner") == 1
    )


def test_an_error_without_a_text_says_where_it_was_raised(serve):
    with serve(broken) as host, connect(host.url) as runner:
        line = broken.__code__.co_firstlineno + 4
        with pytest.raises(ModelError, match=rf"^test_service\.py:{line}: AssertionError$"):
            runner.evaluate({"x": 1})


def test_a_host_that_its_model_closes_before_it_raises_ends_quietly(name, in_thread, caplog):
    host = Host(name)

    def model(request):
        host.close()
        raise ValueError("closed")

    serving = in_thread(host.serve, model)
    with connect(name) as runner, pytest.raises(shmbridge.ClosedError):
        runner.evaluate({"x": 1})
    serving.result()


# ---- Log and record ----


@pytest.mark.parametrize("max_batch", [1, 4])
def test_a_record_holds_only_what_a_runner_got_as_advice(name, tmp_path, max_batch):
    """1: the reply does not fit. 2: it is not exactly what was asked for. 3: the model raises."""

    def model(question):
        x = int(np.max(question["x"]))
        if x == 3:
            raise ValueError("three")
        advice = np.zeros(100_000) if x == 1 else 0.5
        return [advice] if max_batch > 1 else advice

    record = tmp_path / "record"
    options = {"max_batch": max_batch, "record": record}
    with Host(name) as host, host.start(model, **options), connect(name) as runner:
        for x in (0, 1, 2, 3, 4):
            try:
                runner.evaluate({"x": x}, dtype="int64" if x == 2 else None)
            except (TooLargeError, shmbridge.InexactError, ModelError):
                assert x in (1, 2, 3)
    assert recorded(record) == [({"x": 0}, {"advice": 0.5}), ({"x": 4}, {"advice": 0.5})]


def test_one_bad_row_of_a_batch_is_not_recorded_and_the_others_are(name, in_thread, tmp_path):
    def model(batch):
        return [np.zeros(100_000) if x == 1 else np.ones(1) for x in batch["x"]]

    options = {"max_batch": 4, "max_wait": 0.5, "record": tmp_path / "record"}
    with Host(name) as host, host.start(model, **options):
        asking = [evaluating(in_thread, host, {"x": i}) for i in range(3)]
        with pytest.raises(TooLargeError):
            asking[1].result()
        assert asking[0].result() == asking[2].result() == [1.0]
    assert sorted(question["x"] for question, _ in recorded(tmp_path / "record")) == [0, 2]


def test_a_record_may_be_a_writer_which_stays_open(name, tmp_path):
    with LogWriter(tmp_path / "record") as log:
        with Host(name) as host, host.start(lambda r: 1, record=log), connect(name) as runner:
            assert runner.evaluate({"x": 5}) == 1
        log.write({"x": 6}, 2)
    assert [question["x"] for question, _ in recorded(tmp_path / "record")] == [5, 6]


def test_a_log_that_cannot_be_made_is_an_error_before_anything_is_asked(name, tmp_path):
    with Host(name) as host, pytest.raises(OSError, match="nowhere"):
        host.serve(lambda request: 1, record=tmp_path / "nowhere" / "file")


def test_a_shape_where_a_number_belongs_is_an_error_that_says_what_to_write(serve):
    """numpy before 2.4 takes the first one's element."""

    def model(request):
        assert request["size"].item() == request["li_size"].item() == request["n"].item()
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")  # li_size

    says = r"use request\['li_size'\]\.item\(\) for li_size: float32\[1\]"
    with serve(model) as host, connect(host.url) as runner, pytest.raises(ModelError, match=says):
        runner.evaluate({"size": [1.0], "li_size": np.ones(1, np.float32), "n": 1})


def test_a_hundred_kinds_of_errors_are_told_and_no_more(serve, caplog):
    def model(request):
        raise type(f"Error{request['i']}", (Exception,), {})

    with serve(model) as host, connect(host.url) as runner:
        for i in range(150):
            with pytest.raises(ModelError, match=f"Error{i}"):
                runner.evaluate({"i": i})
    assert len(caplog.records) == 100

"""Requests that fail: in the model, for want of room, against the host's specs."""

import numpy as np
import pytest
from support.requests import evaluating

from shmbridge import (
    Host,
    InvalidError,
    MismatchError,
    ModelError,
    NoMemoryError,
    TensorSpec,
    TooLargeError,
    connect,
)

# ---- Errors of the model ----


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [OSError("model-\udcff.onnx"), Unprintable()], ids=["lone surrogate", "unprintable"]
)
def test_any_error_of_a_model_reaches_the_runner(serve, error, caplog):
    caplog.set_level("CRITICAL", "shmbridge")  # pytest-xdist cannot send a lone surrogate

    def model(request):
        raise error

    with serve(model) as host, connect(host.url) as runner:
        for _ in range(2):
            with pytest.raises(ModelError):
                runner.evaluate({"x": 1})


def test_a_failed_request_tells_the_runner_why(host, in_thread):
    for error, text in [
        ("short", "^short$"),
        (ValueError("seven"), "^ValueError: seven$"),
        ("x" * 100_000, "^x{100}"),
    ]:
        asking = evaluating(in_thread, host, {"x": 1})
        assert host.receive(timeout=30).fail(error)
        with pytest.raises(ModelError, match=text):
            asking.result()


@pytest.mark.parametrize(
    "advice",
    [None, object(), [1, "a"], 2**64, {"a": None}, {}, 1j, "\ud800"],
    ids=lambda advice: type(advice).__name__,
)
def test_what_the_model_returns_must_be_advice(serve, advice):
    with (
        serve(lambda request: advice if request["bad"] else 7) as host,
        connect(host.url) as runner,
    ):
        with pytest.raises(ModelError, match="InvalidError"):
            runner.evaluate({"bad": True})
        assert runner.evaluate({"bad": False}) == 7


def test_after_advice_that_is_none_the_request_stays_open(host, in_thread):
    asking = evaluating(in_thread, host, {"x": 1})
    request = host.receive(timeout=30)
    for bad in (
        lambda: request.reply(),
        lambda: request.reply(object()),
        lambda: request.reply(2**64),
        lambda: request.reply(a=1, b=None),
    ):
        with pytest.raises(InvalidError):
            bad()
    assert request.reply(a=1, b=2)
    assert asking.result() == {"a": 1, "b": 2}


def test_text_where_a_number_was_asked_for_is_a_mismatch_in_words(host, in_thread):
    for advice, words in (("inline", "is a text"), (["a", "b"], "is a list of texts")):
        asking = evaluating(in_thread, host, {"x": 1}, dtype=int)
        said = f'the advice "advice" {words}, and the runner asked for a number of dtype int64'
        assert not host.receive(timeout=30).reply(advice)
        with pytest.raises(MismatchError, match=said):
            asking.result()


# ---- Too large ----


def test_features_that_do_not_fit_are_the_runners_error_and_the_next_request_works(serve, echo):
    with (
        serve(echo, request_bytes=1 << 12, advice_bytes=1 << 12) as host,
        connect(host.url) as runner,
    ):
        for _ in range(3):
            with pytest.raises(
                TooLargeError,
                match=r'"x" ends at byte 8000 .* room for 4096: send less, or give the host more '
                r"room \(Host\(request_bytes=...\)\)$",
            ):
                runner.evaluate({"x": np.zeros(1000)})
            assert runner.evaluate({"x": np.zeros(512)}).tolist() == [0] * 512


def test_advice_that_does_not_fit_is_an_error_on_both_sides_and_the_next_request_works(
    host, in_thread
):
    for _ in range(3):
        asking = evaluating(in_thread, host, {"x": 1})
        with pytest.raises(TooLargeError, match=r"room \(Host\(advice_bytes=...\)\)$"):
            host.receive(timeout=30).reply(np.zeros(100_000))
        with pytest.raises(TooLargeError, match=r"room \(Host\(advice_bytes=...\)\)$"):
            asking.result()
        asking = evaluating(in_thread, host, {"x": 1})
        host.receive(timeout=30).reply(np.zeros(1000))
        assert asking.result().shape == (1000,)


def test_a_layout_that_does_not_fit_is_an_error_and_the_next_request_works(serve, echo):
    with serve(echo, header_bytes=1 << 10) as host, connect(host.url) as runner:
        for _ in range(3):
            with pytest.raises(TooLargeError, match="header_bytes"):
                runner.evaluate({f"a name of some length, number {i}": i for i in range(100)})
            assert runner.evaluate({"x": 1}) == 1


# ---- Specs ----


def test_features_other_than_expected_are_an_error_that_shows_both(serve):
    specs = [TensorSpec("x", np.float32, (3, None)), TensorSpec("n", "int64")]
    good = {"x": np.ones((3, 5), "f4"), "n": 1}
    with serve(lambda request: 1, features=specs) as host, connect(host.url) as runner:
        for bad in [
            {"x": np.ones((3, 5)), "n": 1},
            {"x": np.ones((4, 5), "f4"), "n": 1},
            {"x": np.ones((3, 5, 1), "f4"), "n": 1},
            {"x": np.ones((3, 5), "f4")},
            {**good, "more": 1},
            {"x": "text", "n": 1},
            {"x": [[1], [2, 3]], "n": 1},
            {},
        ]:
            with pytest.raises(
                MismatchError, match=r"expects x: float32\[3, \?\], n: int64\[\]; the runner sent "
            ):
                runner.evaluate(bad)
            assert runner.evaluate(good) == 1
        assert runner.evaluate(dict(reversed(good.items()))) == 1
        with pytest.raises(
            MismatchError, match=r"the runner sent x: float64\[3, 5\], n: int64\[\]"
        ):
            runner.evaluate({"x": np.ones((3, 5)), "n": 1})


def test_advice_other_than_promised_is_an_error_on_both_sides_that_shows_both(name, in_thread):
    with Host(name, advice=[TensorSpec("a", np.int32, (2,))]) as host:
        for bad in [
            {"a": 1},
            {"b": [1, 2]},
            {"a": [1, 2], "b": 1},
            {"a": [1.5, 2.0]},
            {"a": [1, 2, 3]},
            {"a": "ab"},
        ]:
            asking = evaluating(in_thread, host, {"x": 1})
            with pytest.raises(MismatchError, match=r"expected advice a: int32\[2\]; found "):
                host.receive(timeout=30).reply(**bad)
            with pytest.raises(MismatchError, match=r"expected advice a: int32\[2\]; found "):
                asking.result()
        asking = evaluating(in_thread, host, {"x": 1})
        host.receive(timeout=30).reply(a=[1.0, 2.0])
        found = asking.result()
        assert found.dtype == np.int32 and found.tolist() == [1, 2]


def test_a_request_that_the_host_has_no_memory_for_is_its_runners_error(
    host, in_thread, monkeypatch
):
    def no_memory(layout):
        raise MemoryError

    monkeypatch.setattr("shmbridge._host.layout.Layout._enter", no_memory)
    asking = evaluating(in_thread, host, {"x": 1})
    while asking.is_alive():
        assert host.receive(timeout=0.01) is None  # the loop goes on
    with pytest.raises(NoMemoryError, match="the host is out of memory"):
        asking.result()

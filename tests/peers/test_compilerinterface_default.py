"""A host of named pipes answers with the default advice where a failure would end the compiler."""

import collections

import numpy as np
import pytest
from support.requests import FIRST, their_client

import shmbridge
from shmbridge import Host, ModelError, TensorSpec, connect


def fails(request):
    raise RuntimeError("no idea")


DEFAULTS = [
    ("?default_advice=0", {}, np.int32(0)),
    ("?default_advice=-3", {}, np.int32(-3)),
    ("?default_advice=0.5", {}, np.float32(0.5)),
    ("?default_advice=7", {"advice": [TensorSpec("advice", np.int64)]}, np.int64(7)),
    ("", {"default_advice": 1}, np.int32(1)),
]


@pytest.mark.parametrize(("query", "options", "expected"), DEFAULTS)
def test_a_failure_is_answered_with_the_default_advice(sent, query, options, expected, capfd):
    assert sent(fails, query, **options) == expected.tobytes()
    said = capfd.readouterr().err
    assert (
        said.count("RuntimeError: no idea: continuing with the default advice") == 1
        and said.count("\n") == 1
    )


def test_advice_that_has_no_form_is_a_failure_too(sent):
    assert sent(lambda request: ["a", "b"], "?default_advice=2") == np.int32(2).tobytes()
    assert sent(lambda request: 2**40, "?default_advice=2") == np.int32(2).tobytes()


def test_json_gets_the_default_as_its_own(tmp_path):
    with (
        Host(f"pipe://{tmp_path}/p?serdes=json&default_advice=0.5") as host,
        host.start(fails),
        their_client(tmp_path / "p") as ask,
    ):
        for question in (b'{"x":1}', b"[not json", b'{"x":2}'):
            assert ask(question)[1] == b'{"out": 0.5}'


def test_questions_that_are_too_large_or_dropped_get_it_too(tmp_path, in_thread, capfd):
    with Host(f"pipe://{tmp_path}/p?default_advice=4", request_bytes=4096) as host:
        dropping = in_thread(collections.deque, host, 0)
        with their_client(tmp_path / "p") as ask:
            for question in (b"x" * 100_000, FIRST, b"nonsense"):
                assert ask(question)[1] == np.int32(4).tobytes()
        host.close()
        dropping.result()
    assert capfd.readouterr().err.count("shmbridge: pipe://") == 1


def test_our_runner_gets_it_in_the_dtype_that_it_wants(tmp_path):
    url = f"pipe://{tmp_path}/p"
    with (
        Host(f"{url}?default_advice=0.5") as host,
        host.start(fails),
        connect(url, deadline=20) as runner,
    ):
        assert runner.evaluate({"x": 1}) == 0.5
        assert runner.evaluate({"x": 1}, dtype=np.float64) == 0.5
        with pytest.raises(ModelError, match="no idea"):  # no int is 0.5
            runner.evaluate({"x": 1}, dtype=np.int64)


@pytest.mark.parametrize("value", ["", "x", "1e999", "nan", "0.5", 2**40])
def test_a_default_that_cannot_be_is_refused(tmp_path, value):
    with pytest.raises(shmbridge.ShmbridgeError, match="default_advice="):
        Host(f"pipe://{tmp_path}/p?default_advice={value}", advice=[TensorSpec("advice", np.int32)])
    assert not list(tmp_path.iterdir())

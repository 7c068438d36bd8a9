"""What a runner or a model may do must not end the host's loop, nor leave a question unanswered."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import shmbridge
from shmbridge._native import ffi, lib
from shmbridge._values import tensor


def asked(
    host: shmbridge.Host, features: dict[str, object], errors: list[Exception]
) -> threading.Thread:
    """A runner in a thread that asks once."""

    def ask() -> None:
        try:
            with shmbridge.connect(host.url) as runner:
                runner.evaluate(features)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_list_cannot_be_read_once_its_runner_has_gone(name):
    with shmbridge.Host(name) as host:
        errors: list[Exception] = []

        def give_up() -> None:
            with (
                shmbridge.connect(host.url, deadline=0.05) as runner,
                pytest.raises(shmbridge.DeadlineError),
            ):
                runner.evaluate({"rows": [[1, 2], [3]], "x": np.arange(3)})

        thread = threading.Thread(target=give_up)
        thread.start()
        stale = host.receive(5)
        thread.join()
        thread = asked(host, {"rows": [[1], [2, 3, 4]], "x": np.arange(3)}, errors)
        fresh = host.receive(5)
        assert [list(row) for row in fresh["rows"]] == [[1], [2, 3, 4]]
        with pytest.raises(shmbridge.RunnerGoneError, match="runner"):
            stale["rows"]
        assert not stale.reply(1)
        assert fresh.reply(1)
        thread.join()
        assert not errors


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [OSError("model-\udcff.onnx"), Unprintable()], ids=["lone surrogate", "unprintable"]
)
def test_any_error_of_a_model_reaches_the_runner(name, error, caplog):
    caplog.set_level("CRITICAL", "shmbridge")  # pytest-xdist cannot send a lone surrogate

    def model(_request: object) -> int:
        raise error

    with shmbridge.Host(name, until_idle=0.3) as host:
        errors: list[Exception] = []
        thread = asked(host, {"x": 1}, errors)
        host.serve(model)
        thread.join()
    assert [type(e) for e in errors] == [shmbridge.ModelError]


def test_text_that_is_no_utf8_goes_there_and_back_as_it_was(name):
    with shmbridge.Host(name) as host:
        thread = threading.Thread(target=host.serve, args=(lambda request: request["name"],))
        thread.start()
        with shmbridge.connect(host.url) as runner:
            assert runner.evaluate({"name": "caf\udce9.c"}) == "caf\udce9.c"
        host.close()
        thread.join()


def test_a_second_reply_on_a_channel_does_not_spoil_one_that_is_being_built(name):
    with shmbridge.Host(name) as host:

        def ask() -> list[object]:
            with shmbridge.connect(host.url, deadline=0.05) as runner:
                with pytest.raises(shmbridge.DeadlineError):
                    runner.evaluate({"x": 1})
                runner.set_deadline(None)
                answers.append(runner.evaluate({"x": 2}))
                return answers

        answers: list[object] = []
        thread = threading.Thread(target=ask)
        thread.start()
        late, current = host.receive(5), host.receive(5)
        with host._building:  # as another thread would be
            assert lib.shmb_host_reply_begin(host._h, current._key) == 0
            assert lib.shmb_host_reply(host._h, late._key, False, ffi.NULL, 0) == lib.SHMB_INVALID
            tensor.write_field(
                lambda *a: lib.shmb_host_reply_add(host._h, current._key, *a),
                tensor.as_field("advice", np.arange(3)),
            )
            assert lib.shmb_host_reply_send(host._h, current._key, False) == 0
        current._open = False
        late.reply(7)
        thread.join()
    assert np.array_equal(answers[0], np.arange(3))

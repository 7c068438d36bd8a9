"""What becomes of a request: answered, dropped, late; by this thread or another."""

import asyncio
import gc
import itertools
import os
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.requests import attached, evaluating

from shmbridge import (
    ClosedError,
    DeadlineError,
    DroppedError,
    Host,
    InvalidError,
    ModelError,
    RunnerGoneError,
    ShmbridgeError,
    connect,
)

CONTROLS = "\x1b[2J\n\r\t\x00\x07\x7f\x9b31m"


@given(st.text(st.sampled_from(CONTROLS + "aé…€")))
@example(CONTROLS)
def test_a_models_text_is_one_line_that_moves_no_cursor(text):
    """The compiler prints it on its user's terminal."""

    def ask():
        with connect(f"line-{os.getpid()}") as runner, pytest.raises(ModelError) as error:
            runner.evaluate({"x": 1})
        return str(error.value)

    with Host(f"line-{os.getpid()}") as host, ThreadPoolExecutor() as pool:
        asking = pool.submit(ask)
        host.receive(10).fail(text)
        shown = asking.result()
    kept = text.partition("\0")[0]
    assert shown.isprintable(), shown
    if kept:  # else the status has a text
        assert [c for c in shown if c in "aé…€"] == [c for c in kept if c in "aé…€"]


# ---- Dropped ----


def listed(host):
    return list(itertools.islice(host, 3))


def from_an_executor(host):
    async def take():
        loop, requests = asyncio.get_running_loop(), iter(host)
        return [await loop.run_in_executor(None, next, requests) for _ in range(3)]

    return asyncio.run(take())


def asynchronous(host):
    async def take():
        held = []
        async for request in host:
            held.append(request)
            if len(held) == 3:
                return held

    return asyncio.run(take())


def in_batches(host):
    return [batch.requests[0] for batch in itertools.islice(host.batches(max_size=1), 3)]


HOLDERS = {
    "islice": listed,
    "run_in_executor": from_an_executor,
    "async for": asynchronous,
    "batches": in_batches,
}


def test_a_request_is_answered_with_an_error_when_its_last_reference_ends(host, in_thread):
    def ask():
        with connect(host.url) as runner:
            for i in range(6):
                if i % 2:
                    assert runner.evaluate({"i": i}) == i
                else:
                    with pytest.raises(
                        DroppedError, match="discarded this request without a reply"
                    ):
                        runner.evaluate({"i": i})

    asking = in_thread(ask)
    for request in host:
        i = int(request["i"])
        if i % 2 == 0:
            del request
            continue
        request.reply(i)
        if i == 5:
            break
    asking.result()


@pytest.mark.parametrize("how", HOLDERS)
def test_each_request_that_is_held_can_be_answered_later(host, in_thread, how):
    asking = [evaluating(in_thread, host, {"x": i}) for i in range(3)]
    held = HOLDERS[how](host)
    assert len(held) == 3
    for request in held:
        assert request.reply(request["x"])
    assert [call.result() for call in asking] == [0, 1, 2]


def test_a_request_that_is_held_and_forgotten_is_told_of_once_and_ends_with_its_deadline(
    name, in_thread, caplog
):
    with Host(name) as host:

        def loop():
            for request in host:
                held.append(request)

        held, call = [], in_thread(loop)
        for _ in range(2):
            with connect(name, deadline=2.5) as runner, pytest.raises(DeadlineError):
                runner.evaluate({"feature": 1})
        host.close()
        call.result()
    (told,) = caplog.records
    assert "no reply for a second" in told.getMessage()
    assert told.getMessage().endswith("feature: int64[]")


def test_a_reply_takes_the_dict_that_a_served_function_may_return(host, in_thread):
    asking = evaluating(in_thread, host, {"x": 1})
    request = host.receive(timeout=30)
    for nothing in ({}, types.MappingProxyType({})):
        with pytest.raises(InvalidError, match="found none"):
            request.reply(nothing)
    assert request.reply({"a": 1, "b": "text"}, c=2.5)
    assert asking.result() == {"a": 1, "b": "text", "c": 2.5}


def test_a_request_in_a_cycle_is_answered_when_it_is_collected(host, in_thread):
    asking = evaluating(in_thread, host, {"x": 1})
    cycle = [host.receive(timeout=30)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    with pytest.raises(DroppedError):
        asking.result()


# ---- Wishes ----


def test_a_wish_that_is_no_dtype_is_an_error(serve, echo):
    with serve(echo) as host, connect(host.url) as runner:
        with pytest.raises(InvalidError, match="complex128"):
            runner.evaluate({"x": 1}, dtype=complex)
        assert runner.evaluate({"x": 1}) == 1


# ---- Late ----


def test_a_list_cannot_be_read_once_its_runner_has_gone(host, in_thread):
    def give_up():
        with connect(host.url) as runner, pytest.raises(DeadlineError):
            runner.set_deadline(0.5)
            runner.evaluate({"rows": [[1, 2], [3]], "x": np.arange(3)})

    giving_up = in_thread(give_up)
    stale = host.receive(5)
    giving_up.result()
    asking = evaluating(in_thread, host, {"rows": [[1], [2, 3, 4]], "x": np.arange(3)})
    fresh = host.receive(5)
    assert [list(row) for row in fresh["rows"]] == [[1], [2, 3, 4]]
    with pytest.raises(RunnerGoneError, match="runner"):
        stale["rows"]
    assert not stale.reply(1)
    assert fresh.reply(1) and asking.result() == 1


# ---- Other threads ----


def test_of_two_replies_to_one_request_one_wins(host, in_thread):
    for _ in range(50):
        asking = evaluating(in_thread, host, {"x": 1})
        request = host.receive(timeout=30)
        barrier, outcomes = threading.Barrier(2), []

        def answer(i, request=request, barrier=barrier, outcomes=outcomes):
            barrier.wait()
            try:
                outcomes.append(request.reply([i, i]))
            except InvalidError:
                outcomes.append(False)

        threads = [threading.Thread(target=answer, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [False, True]
        assert asking.result().tolist() in ([0, 0], [1, 1])
        del request, answer, threads


# ---- Closed ----


def test_after_close_a_kept_request_cannot_be_answered(name, in_thread):
    host = Host(name)
    asking = evaluating(in_thread, host, {"x": [1, 2]})
    request = host.receive(timeout=30)
    x = request["x"]
    host.close()
    host.close()
    for reply in (1, [1, 2]):
        with pytest.raises((ClosedError, InvalidError)):
            request.reply(reply)
    with pytest.raises(ClosedError, match="the host has closed the bridge"):
        asking.result()
    assert x.tolist() == [1, 2] and "closed" in repr(host)
    with pytest.raises(ClosedError):
        host.receive()
    assert list(host) == []


def test_a_runner_that_has_gone_makes_the_reply_false(name):
    with Host(name) as host, ThreadPoolExecutor(1) as pool:
        for reply in (1, [1, 2], "x"):
            runner = attached(pool.submit, host, deadline=0.5)
            asking = pool.submit(runner.evaluate, {"x": 1})
            request = host.receive(timeout=30)
            with pytest.raises(DeadlineError):
                asking.result()
            runner.close()
            while host.runners:
                host.receive(timeout=0.01)
            assert request.reply(reply) is False
            del request


def test_a_closed_runner_says_so(serve, echo):
    with serve(echo) as host:
        runner = connect(host.url)
        runner.close()
        runner.close()
        runner.set_deadline(1)
        with pytest.raises(ClosedError, match="connect another"):
            runner.evaluate({"x": 1})


def test_every_error_is_an_error_of_shmbridge_and_of_pythons_own_kind():
    from shmbridge import errors

    codes = {cls.status for cls in errors.BY_STATUS.values()}
    assert codes == set(range(1, 22)) and all(
        issubclass(cls, ShmbridgeError) for cls in errors.BY_STATUS.values()
    )
    assert issubclass(DeadlineError, TimeoutError) and issubclass(InvalidError, ValueError)
    assert issubclass(errors.SystemCallError, OSError)
    assert issubclass(errors.NotPermittedError, PermissionError)


# ---- A runner in two threads ----


def test_closing_a_runner_in_another_thread_ends_its_evaluate(host, in_thread):
    runner = attached(in_thread, host)
    asking = in_thread(runner.evaluate, {"x": 1})
    request = host.receive(timeout=30)
    runner.close()
    with pytest.raises(ClosedError, match="another thread has closed this runner"):
        asking.result()
    while host.runners:
        host.receive(timeout=0.01)
    assert request.reply(1) is False


def test_a_runner_is_for_one_thread_at_a_time(host, in_thread):
    with attached(in_thread, host) as runner:
        asking = in_thread(runner.evaluate, {"x": 1})
        request = host.receive(timeout=30)
        with pytest.raises(InvalidError, match="this runner is in use, by another thread"):
            runner.evaluate({"x": 2})
        request.reply(3)
        assert asking.result() == 3

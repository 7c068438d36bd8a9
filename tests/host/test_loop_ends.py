"""A host's loop ends: closed, idle, left by its body."""

import asyncio
import gc
import time
from contextlib import suppress

import pytest

from shmbridge import ClosedError, DroppedError, Host, ModelError, connect

pytestmark = pytest.mark.timeout(60)  # instead of timing: what ought to end ends


# ---- Closed ----


def test_a_model_may_close_its_host(name, in_thread):
    host = Host(name)

    def model(request):
        if request["last"]:
            host.close()
        return 1

    serving = in_thread(host.serve, model)
    with connect(name) as runner:
        assert runner.evaluate({"last": False}) == 1
        with pytest.raises(ClosedError):
            runner.evaluate({"last": True})
    serving.result()


def test_leaving_the_with_block_closes(name, shm_files):
    with Host(name) as host:
        assert shm_files()
        assert host.url == f"shm://{name}" and repr(host) == f"<Host shm://{name}>"
    assert not shm_files() and "closed" in repr(host)
    del host
    Host(name)  # and so does being let go
    assert not shm_files()


# ---- Idle ----


def test_a_host_without_any_runner_ends_when_it_has_been_idle(name):
    with Host(name, until_idle=0.2) as host:
        assert list(host) == [] and list(host.batches()) == []
        host.serve(lambda request: 1)
        host.serve(lambda request: 1, max_batch=4)


def test_a_host_with_a_runner_is_not_idle(name, in_thread):
    with Host(name, until_idle=0.3) as host:
        serving = in_thread(host.serve, lambda request: 1)
        with connect(name) as runner:
            serving.join(1.0)
            assert serving.is_alive() and runner.evaluate({"x": 1}) == 1
        serving.result()


def one_at_a_time(host):
    with suppress(ClosedError):
        while True:
            host.receive().reply(1)


async def answers(host):
    async for request in host:
        request.reply(1)


@pytest.mark.parametrize(
    "loop",
    [
        lambda host: host.serve(lambda request: 1),
        one_at_a_time,
        lambda host: asyncio.run(answers(host)),
    ],
)
def test_idleness_begins_when_a_busy_runner_leaves(name, in_thread, loop):
    """A runner that never pauses leaves the loop no moment to notice the time."""
    clock = Clock()
    with Host(name, until_idle=1000) as host, pytest.MonkeyPatch.context() as patch:
        patch.setattr("shmbridge._host.receiving.time", clock)
        serving = in_thread(loop, host)
        with connect(name) as runner:
            for _ in range(2000):
                runner.evaluate({"x": 1})
                clock.offset += 1
        serving.join(0.5)
        assert serving.is_alive()
        clock.offset += 1001
        serving.result()


class Clock:
    """The time module, ahead by offset seconds."""

    offset = 0.0

    def monotonic(self):
        return time.monotonic() + self.offset


# ---- A loop's body that raises ----


@pytest.mark.parametrize("batches", [False, True])
def test_an_exception_that_leaves_with_request_is_its_answer_and_the_host_goes_on(
    name, in_thread, batches
):
    """As in a notebook: nothing closes the host, and the traceback holds the request."""
    host = Host(name)

    def cell():
        for question in host.batches(max_size=2) if batches else host:
            with question:
                raise ValueError("a slip")

    asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
    with pytest.raises(ValueError, match="a slip"):
        cell()
    with pytest.raises(ModelError, match="ValueError: a slip"):
        asking.result()
    again = in_thread(lambda: connect(name).evaluate({"x": 1}))
    for question in host.batches() if batches else host:
        with question:
            question.reply([2] if batches else 2)
        break
    assert again.result() == 2
    host.close()


def test_an_exception_of_the_loops_body_drops_the_request_with_its_frame(name, in_thread):
    with Host(name) as host:
        asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
        with pytest.raises(ValueError):
            for request in host:  # noqa: B007
                raise ValueError
        del request
        with pytest.raises(DroppedError):
            asking.result()


def test_an_exception_that_the_loops_body_catches_leaves_the_request_to_it(name, in_thread):
    with Host(name) as host:
        asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
        for request in host:
            try:
                raise ValueError
            except ValueError:
                request.reply(5)
                break
        assert asking.result() == 5


def test_a_loop_that_is_left_with_break_leaves_the_request_open(name, in_thread):
    with Host(name) as host:
        asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
        for request in host:  # noqa: B007
            break
        try:
            raise ValueError
        except ValueError:
            request.reply(5)
        assert asking.result() == 5
        asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
        request = next(iter(host))
        request.reply(6)
        assert asking.result() == 6


def test_a_loop_is_collected_with_what_holds_it(name):
    host = Host(name)
    host.loop = iter(host)
    del host
    gc.collect()  # the fixture sees that its files are gone

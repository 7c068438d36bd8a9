"""Several questions of one runner in flight, in Python: `send` and `receive`."""

import pytest
from support.requests import attached

from shmbridge import DeadlineError, Host
from shmbridge._native import lib
from shmbridge.errors import InterruptedCallError


def test_a_host_sees_one_compilers_questions_as_a_batch(name, in_thread):
    with Host(name, slots=8) as host, attached(in_thread, host) as runner:
        tickets = [runner.send({"x": i}) for i in range(8)]
        batch = next(iter(host.batches(max_size=8)))
        assert len(batch) == 8
        batch.reply(batch["x"] + 1)
        assert [runner.receive(ticket) for ticket in tickets] == list(range(1, 9))


def test_a_question_that_is_late_is_given_up_alone(name, in_thread):
    with Host(name, slots=4) as host, attached(in_thread, host) as runner:
        runner.set_deadline(0.1)
        late = runner.send({"x": 1})
        runner.set_deadline(60)
        soon = runner.send({"x": 2})
        first, second = host.receive(timeout=30), host.receive(timeout=30)
        second.reply(2)
        with pytest.raises(DeadlineError):
            runner.receive(late)
        assert runner.receive(soon) == 2
        first.reply(1)


def test_an_interrupt_ends_one_wait(name, in_thread):
    with Host(name, slots=4) as host, attached(in_thread, host) as runner:
        tickets = [runner.send({"x": i}) for i in range(2)]
        lib.shmb_interrupt(runner._r)
        with pytest.raises(InterruptedCallError):
            runner.receive(tickets[0])
        for request in (host.receive(timeout=30), host.receive(timeout=30)):
            request.reply(7)
        assert runner.receive(tickets[1]) == 7

"""The second implementation (tests/pure_python) and the library understand each other: any message
arrives as it was sent, and both find the same lies."""

import copy
import itertools
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pure_python import api, link, segment
from pure_python.arrays import to_value
from pure_python.convert import convert, unpack
from pure_python.errors import Error, Status, Violation
from pure_python.runner import Runner
from support.values import expect_same, messages

import shmbridge

EXAMPLES = 100
ROOM = {"request_bytes": 1 << 14, "advice_bytes": 1 << 14}
MESSAGES = messages(min_size=1, plain=True)
SETTINGS = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@contextmanager
def serving(host, model):
    """A host in a thread."""
    with host:
        thread = threading.Thread(target=host.serve, args=(model,))
        thread.start()
        try:
            yield
        finally:
            host.close()
            thread.join()


BOTH = pytest.mark.parametrize(
    "host, connect", [(shmbridge.Host, api.connect), (api.Host, shmbridge.connect)]
)


@BOTH
def test_any_message_arrives_as_it_was_sent(name, host, connect):
    seen = {}

    def model(request):
        seen.clear()
        seen.update((key, copy.deepcopy(value)) for key, value in request.items())
        return dict(request)

    with serving(host(name, **ROOM), model), closing(connect(name)) as runner:

        @SETTINGS
        @given(MESSAGES)
        def check(message):
            runner.evaluate(message)
            expect_same(seen, message)
            expect_same(runner.advice, message)

        check()


@BOTH
def test_a_side_of_version_2_is_told_both_versions(name, host, connect, monkeypatch):
    monkeypatch.setattr(segment, "VERSION", 2)  # of the second implementation
    with host(name, **ROOM), pytest.raises(shmbridge.IncompatibleError, match=r"version [23]"):
        connect(name)


def test_a_batch_holds_several_requests_of_one_runner(name, in_thread):
    with shmbridge.Host(name, slots=4, **ROOM) as host:
        connecting = in_thread(Runner, name)
        while not host.runners:
            host.receive(timeout=0.01)
        batches = host.batches()
        with connecting.result() as runner:
            for sequence in range(1, 60, 2):
                for x in (sequence, sequence + 1):
                    fields = api.to_fields({"x": np.int64(x)})
                    runner.link.send(x, fields, set(runner.link.taken))
                batch = next(batches)
                assert sorted(batch["x"]) == [sequence, sequence + 1]
                batch.reply(batch["x"])
                for _ in range(2):
                    reply = runner._take(time.monotonic() + 20)
                    assert to_value(reply.fields[0]) == reply.sequence


def test_a_runner_gets_the_slot_back_that_a_view_of_an_earlier_request_held(name, in_thread):
    views = []
    with shmbridge.Host(name, **ROOM) as host:
        for _ in range(2):
            connecting = in_thread(api.connect, name, 20)
            while connecting.is_alive():
                host.receive(timeout=0.01)
            with closing(connecting.result()) as runner:
                ticket = runner.send({"x": np.zeros(99)})
                views.clear()
                request = host.receive(timeout=20)
                views.append(request["x"])  # outlives the runner
                request.reply(1)
                assert runner.receive(ticket) == 1


def test_a_live_host_without_hints_is_reported_without_a_process(name):
    with api.Host(name), pytest.raises(shmbridge.InUseError, match="a live host is named"):
        shmbridge.Host(name)


# ---- Lies ----

# Values around each limit, for the fields of a descriptor.
LIMITS = {
    "generation": [0, 2**32 - 1],
    "returns": [set(), {0}, {1}, {0, 1}, {4}, {31}],
    "layout": [0, 1, 15, 16, 2**16 - 1],
    "slot": [0, 1, 3, 4, 32, 255],
    "flags": [0, 1, 2, 3, 4, 8, 9, 12, 16, 32],
    "code": [0, 5, 13, 14, 21, 22, 255],
    "text": [0, 32, 33, 2**16 - 1],
}
LIES = st.one_of(
    *(st.tuples(st.just(name), st.sampled_from(values)) for name, values in LIMITS.items()),
    st.tuples(st.just("data"), st.binary(min_size=1, max_size=32)),
    st.tuples(st.just("meta"), st.tuples(st.integers(0, 300), st.binary(min_size=1, max_size=9))),
    st.tuples(st.just("body"), st.tuples(st.integers(0, 130), st.binary(min_size=1, max_size=9))),
)


class Liar:
    """Has a Link lie in its next message. `outcome` is what a receiver of ours makes of that: a
    Message or a Violation."""

    def __init__(self, sender, lies):
        self.sender, self.lies, self.sent = sender, lies, threading.Event()
        self.honest, sender.push = sender.push, self.push
        self.receiver = receiver = copy.copy(sender)
        receiver.side = 1 - sender.side
        receiver.theirs, receiver.sent = set(sender.owned), set(sender.taken)
        receiver.owned, receiver.taken = set(), set()
        receiver.layouts = [dict(known) for known in sender.layouts]
        receiver.position = list(sender.position)

    def push(self, *values):
        names = "sequence", "returns", "layout", "slot", "flags", "code", "text", "data"
        values, generation = dict(zip(names, values, strict=True)), self.sender.generation
        slot = values["slot"]
        for name, value in self.lies:
            if name == "generation":
                self.sender.generation = value
            elif name in values:
                values[name] = value
            elif slot != link.NO_SLOT:
                at = self.sender._slot(self.sender.side, slot)[name == "body"] + value[0]
                self.sender.segment.write(at, value[1])
        other = {slot} ^ {values["slot"]}  # its own books agree with what it sends
        self.sender.sent ^= other
        self.sender.owned ^= other
        self.honest(*values.values())
        self.sender.generation = generation
        try:
            self.outcome = self.receiver.take()
        except Violation as violation:
            self.outcome = violation
        self.sent.set()


def unlike(found, expected):
    """The first of the fields that differ; NaNs are equal after a conversion."""
    for a, b in itertools.zip_longest(found, expected):
        if a != b and (not a or not b or a[:5] != b[:5] or not same_numbers(a, b)):
            return a, b
    return None


def same_numbers(a, b):
    pairs = zip(unpack(a.dtype, a.values), unpack(b.dtype, b.values), strict=True)
    return all(x == y or x != x and y != y for x, y in pairs)


def converted(message):
    """The echo of a request."""
    if message.code and len(message.fields) == 1:
        return [convert(message.fields[0], message.code)]
    return message.fields


def test_the_host_refuses_what_the_protocol_refuses(name):
    outcomes = Counter()
    with serving(shmbridge.Host(name, channels=2, **ROOM), dict):

        @SETTINGS
        @given(st.lists(MESSAGES, max_size=2), MESSAGES, st.lists(LIES, min_size=1, max_size=3))
        def check(before, message, lies):
            with Runner(name) as runner:
                for honest in before:
                    runner.evaluate(api.to_fields(honest))
                liar = Liar(runner.link, lies)
                try:
                    found = runner.evaluate(api.to_fields(message))
                except Error as error:
                    found = error
            expected = liar.outcome
            if isinstance(expected, Violation):
                outcome = Status.CORRUPT
            else:
                try:
                    wanted, outcome = converted(expected), None
                    assert isinstance(found, list) and not unlike(found, wanted), (found, wanted)
                except Error as error:
                    outcome = error.status
            outcomes[outcome] += 1
            assert outcome is None or found.status == outcome, (found, expected)
            with shmbridge.connect(name) as honest_runner:
                assert honest_runner.evaluate({"x": 1}) == 1

        check()
    assert outcomes[Status.CORRUPT] and outcomes[None], outcomes


def test_the_runner_refuses_what_the_protocol_refuses(name):
    outcomes, lies, liars = Counter(), [], []

    def model(request):
        if lies:
            liars.append(Liar(request.asked.link, list(lies)))
        return dict(request)

    with serving(api.Host(name, channels=2, **ROOM), model):

        @SETTINGS
        @given(st.lists(MESSAGES, max_size=2), MESSAGES, st.lists(LIES, min_size=1, max_size=3))
        def check(before, message, next_lies):
            with shmbridge.connect(name, deadline=20) as runner:
                for honest in before:
                    runner.evaluate(honest)
                lies[:] = next_lies
                try:
                    runner.evaluate(message)
                    found = dict(runner.advice)
                except shmbridge.ShmbridgeError as error:
                    found = error
                lies.clear()
            assert liars[-1].sent.wait(10)
            expected = liars[-1].outcome
            if isinstance(expected, Violation):
                outcome = Status.CORRUPT
            elif expected.failure is not None:
                outcome = Status(expected.code or Status.MODEL)
            else:
                outcome = None
                expect_same(found, {field.name: to_value(field) for field in expected.fields})
            outcomes[outcome] += 1
            assert outcome is None or found.status == outcome, (found, expected)
            with api.connect(name) as honest_runner:
                assert honest_runner.evaluate({"x": np.array(1)}) == 1

        check()
    assert outcomes[Status.CORRUPT] and outcomes[None], outcomes

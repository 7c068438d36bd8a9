"""Any sequence of questions in flight gives each its own answer: sent, received in any order, late,
interrupted, failed, with a default advice, and after the host's end; by the C core and by the pure
Python runner."""

import numpy as np
import pytest
from cross.test_any_sequence import DROP, ECHO, FAIL, LATE, EchoHost, serials
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)
from pure_python import api

import shmbridge
from shmbridge.errors import InterruptedCallError, ShmbridgeError

DEFAULT = -1
ENDS = (shmbridge.ClosedError, shmbridge.HostGoneError, shmbridge.DroppedError)
ERRORS = {FAIL: shmbridge.ModelError, DROP: shmbridge.DroppedError, LATE: shmbridge.DeadlineError}


class Asker:
    """A runner, and what it has asked: what becomes of each ticket, and its number."""

    def __init__(self, kind, name):
        self.kind, self.name = kind, name
        self.open()

    def open(self):
        self.tickets = {}
        if self.kind == "pure":
            self.runner = api.connect(self.name, connect_timeout=5)
        else:
            default = f"?default_advice={DEFAULT}" if self.kind == "default" else ""
            self.runner = shmbridge.connect(self.name + default)

    def send(self, do, size=0, deadline=None):
        serial = next(serials)
        self.runner.set_deadline(deadline)
        x = np.full(size, serial, np.int64)
        sent = {"do": np.int64(do), "serial": np.int64(serial), "x": x}
        ticket = self.runner.send(sent)
        assert ticket and ticket not in self.tickets
        self.tickets[ticket] = do, serial, size
        return ticket

    def receive(self, ticket, *others):
        """others: errors that are right as well."""
        do, serial, size = self.tickets.pop(ticket)
        try:
            found = self.runner.receive(ticket)
        except ShmbridgeError as error:
            assert isinstance(error, (*others, *([ERRORS[do]] if do in ERRORS else [])))
            assert do != FAIL or others or str(error) == f"number {serial}"
            return
        if self.kind == "default" and (do in ERRORS or others) and not isinstance(found, dict):
            assert found == DEFAULT
            return
        assert do == ECHO and found["serial"] == serial
        assert np.array_equal(found["x"], np.full(size, serial))

    def receive_all(self, *others):
        for ticket in list(self.tickets):
            self.receive(ticket, *others)


def machine(name):
    class Flight(RuleBasedStateMachine):
        askers = Bundle("askers")

        @initialize()
        def start(self):
            self.echo, self.open = EchoHost(name), []

        @rule(target=askers, kind=st.sampled_from(["C", "default", "pure"]))
        def connect(self, kind):
            if len(self.open) == 3:
                return multiple()
            self.open.append(Asker(kind, name))
            return self.open[-1]

        @rule(asker=consumes(askers))
        def close(self, asker):
            self.open.remove(asker)
            asker.runner.close()

        @rule(
            asker=askers,
            do=st.sampled_from([ECHO, ECHO, ECHO, FAIL, DROP]),
            size=st.integers(0, 200),
            times=st.integers(1, 6),
        )
        def send(self, asker, do, size, times):
            for _ in range(times):
                asker.send(do, size)

        @rule(asker=askers, which=st.integers(0, 100))
        def receive(self, asker, which):
            if asker.tickets:
                asker.receive(list(asker.tickets)[which % len(asker.tickets)])

        @rule(asker=askers)
        def ask_and_wait(self, asker):
            asker.receive(asker.send(ECHO, 3))

        @rule(asker=askers)
        def one_is_late(self, asker):
            try:
                ticket = asker.send(LATE, deadline=0.03)
            except shmbridge.DeadlineError:  # the reply to one that was given up is still missing
                return
            late = asker.tickets[ticket][1]
            asker.receive(ticket)
            self.echo.given_up = late

        @rule(asker=askers)
        def one_is_interrupted(self, asker):
            if asker.kind == "pure":
                return
            ticket = asker.send(LATE)
            late = asker.tickets[ticket][1]
            shmbridge._native.lib.shmb_interrupt(asker.runner._r)
            asker.receive(ticket, InterruptedCallError)
            self.echo.given_up = late

        @rule()
        def the_host_ends_and_another_begins(self):
            self.echo.close()
            for asker in self.open:
                asker.receive_all(*ENDS)
                asker.runner.close()
            self.echo = EchoHost(name)
            for asker in self.open:
                asker.open()

        def teardown(self):
            if hasattr(self, "echo"):
                try:
                    for asker in self.open:
                        asker.receive_all()
                finally:  # otherwise the next example fails, too
                    for asker in self.open:
                        asker.runner.close()
                    self.echo.close()

    return Flight


@pytest.mark.timeout(3600)
def test_any_sequence_of_questions_in_flight(name, long):
    run_state_machine_as_test(
        machine(name),
        settings=settings(
            max_examples=600 if long else 30,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""Any sequence of operations of Python and C runners on one host gives each runner its own answers,
and leaves kept arrays as they were. The reference is an echo: what was sent is what must come
back."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import shmbridge
from shmbridge import Host, connect

ECHO, KEEP, KEEP_PART, DROP, FAIL, LATE, LARGE = range(7)
DTYPES = [
    np.dtype(d) for d in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
]
STATUS = {
    14: "TooLargeError",
    17: "ModelError",
    18: "DroppedError",
    12: "DeadlineError",
    1: "InvalidError",
}
serials = itertools.count(1)


class EchoHost:
    """A host in a thread, whose requests say what becomes of them: "do" is one of the above."""

    def __init__(self, name):
        self.host = Host(name, channels=3, slots=4, request_bytes=1 << 13, advice_bytes=1 << 13)
        self.given_up = 0  # the last serial number
        # Pairs of an array and its copy; requests to be answered too late.
        self.kept, self.late = [], []
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def loop(self):
        while True:
            try:
                request = self.host.receive(timeout=0.01)
                self.answer_late()
                if request is not None:
                    self.answer(request)
                del request
            except shmbridge.ClosedError:
                return

    def answer_late(self):
        """Those whose runners have seen that they come too late. Until then they hold a slot: maybe
        the last."""
        while self.late and self.late[0]["serial"] <= self.given_up:
            self.late.pop(0).reply("late")

    def answer(self, request):
        do = int(request["do"])
        if do in (KEEP, KEEP_PART):
            for value in request.values():
                if isinstance(value, np.ndarray):
                    kept = value if do == KEEP else value.reshape(-1)[::2]
                    self.kept.append((kept, kept.copy()))
        if do == DROP:
            return
        if do == FAIL:
            request.fail(f"number {request['serial']}")
        elif do == LATE:
            self.late.append(request)
        elif do == LARGE:
            with pytest.raises(shmbridge.TooLargeError):
                request.reply(np.zeros(1 << 14, np.uint8))
        else:
            request.reply(**dict(request))

    def close(self):
        self.host.close()
        self.thread.join()


class PythonRunner:
    def __init__(self, name):
        self.runner = connect(name)

    def ask(self, features, deadline=None):
        """The advice by name, or the error's class and text."""
        self.runner.set_deadline(deadline)
        try:
            self.runner.evaluate(features)
            return self.runner.advice
        except shmbridge.ShmbridgeError as error:
            return type(error).__name__, str(error)

    def close(self):
        self.runner.close()


class CRunner:
    def __init__(self, name, start):
        self.runner = start(name)

    def ask(self, features, deadline=None):
        self.runner.do("deadline", deadline or 0)
        for name, value in features.items():
            if isinstance(value, str):
                self.runner.do("string", name, value.encode().hex() or "-")
            else:
                array = np.asarray(value)
                code = DTYPES.index(array.dtype) + 1
                self.runner.do(
                    "feature", name, code, array.ndim, *array.shape, array.tobytes().hex() or "-"
                )
        status, _, rest = self.runner.do("evaluate", 0).partition(" ")
        if status != "0":
            return STATUS[int(status)], rest
        return dict(self.read(field.split()) for field in rest.split("| ")[1:])

    @staticmethod
    def read(words):
        name, code, kind, rank = words[0], *map(int, words[1:4])
        data = b"" if words[-1] == "-" else bytes.fromhex(words[-1])
        if kind == 1:
            return name, data.decode()
        return name, np.frombuffer(data, DTYPES[code - 1]).reshape(
            [int(n) for n in words[4 : 4 + rank]]
        )

    def close(self):
        self.runner.do("close")
        self.runner.kill()
        self.runner.communicate()


@st.composite
def layouts(draw):
    """Features of a few names, so that layouts come again, and of any small sizes."""
    features = {}
    for name in draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3)):
        if draw(st.integers(0, 3)) == 0:
            features[name] = draw(st.text(st.characters(codec="utf-8"), max_size=30))
        else:
            dtype = draw(st.sampled_from(DTYPES))
            shape = draw(st.lists(st.integers(0, 4), max_size=3))
            features[name] = draw(st.integers(0, 1)) * np.ones(shape, dtype)
    return {
        name: value if isinstance(value, str) else np.asarray(value)
        for name, value in features.items()
    }


def machine(name, start_c):
    class Sequence(RuleBasedStateMachine):
        runners = Bundle("runners")

        @initialize()
        def start(self):
            self.echo = EchoHost(name)
            self.open = []

        def connected(self, runner):
            self.open.append(runner)
            return runner

        @rule(target=runners, in_c=st.booleans())
        def connect(self, in_c):
            if len(self.open) == 3:
                return multiple()
            return self.connected(CRunner(name, start_c) if in_c else PythonRunner(name))

        @rule(runner=consumes(runners))
        def close(self, runner):
            self.open.remove(runner)
            runner.close()

        @rule(runner=runners, features=layouts(), do=st.sampled_from([ECHO, ECHO, KEEP, KEEP_PART]))
        def evaluate(self, runner, features, do):
            serial = next(serials)
            sent = {"do": np.int64(do), "serial": np.int64(serial), **features}
            found = runner.ask(sent)
            assert isinstance(found, dict) and list(found) == list(sent), found
            for key, value in sent.items():
                if isinstance(value, str):
                    assert found[key] == value
                else:
                    assert np.asarray(found[key]).shape == np.asarray(
                        value
                    ).shape and np.array_equal(found[key], value)

        @rule(runner=runners, do=st.sampled_from([DROP, FAIL, LARGE]))
        def get_an_error(self, runner, do):
            serial = next(serials)
            kind, text = runner.ask({"do": np.int64(do), "serial": np.int64(serial)})
            assert kind == {DROP: "DroppedError", FAIL: "ModelError", LARGE: "TooLargeError"}[do]
            assert do != FAIL or text == f"number {serial}"

        @rule(runner=runners)
        def get_no_answer_in_time(self, runner):
            serial = next(serials)
            kind, _ = runner.ask({"do": np.int64(LATE), "serial": np.int64(serial)}, deadline=0.02)
            assert kind == "DeadlineError"
            self.echo.given_up = serial

        @rule(runner=runners)
        def send_too_much(self, runner):
            kind, _ = runner.ask({"do": np.int64(ECHO), "x": np.zeros(1 << 13, np.uint8)})
            assert kind == "TooLargeError"

        @rule(which=st.integers(0, 100))
        def let_go(self, which):
            kept = self.echo.kept
            if kept:
                del kept[which % len(kept)]

        @rule()
        def restart_the_host(self):
            self.echo.close()
            for runner in self.open:
                runner.close()
            self.kept_before = self.echo.kept
            self.echo = EchoHost(name)
            self.echo.kept = self.kept_before
            for runner in self.open:
                again = (
                    PythonRunner(name)
                    if isinstance(runner, PythonRunner)
                    else CRunner(name, start_c)
                )
                runner.__dict__.update(again.__dict__)

        @invariant()
        def kept_arrays_are_as_they_were(self):
            for kept, copy in getattr(self, "echo", None) and self.echo.kept or ():
                assert np.array_equal(kept, copy)

        def teardown(self):
            if hasattr(self, "echo"):
                for runner in self.open:
                    runner.close()
                self.echo.close()

    return Sequence


@pytest.mark.timeout(3600)
def test_any_sequence_of_operations(name, c_runner, long):
    examples = 1000 if long else 40
    run_state_machine_as_test(
        machine(name, c_runner),
        settings=settings(
            max_examples=examples, stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )

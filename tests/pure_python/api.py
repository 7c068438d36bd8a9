"""The pure Python runner and host with the values, errors and calls of shmbridge's Python API."""

import contextlib
import threading

import numpy as np

from shmbridge.errors import BY_STATUS, RunnerGoneError, ShmbridgeError

from . import host, runner
from .arrays import to_field, to_value
from .errors import Error, Status
from .segment import Closing, up


@contextlib.contextmanager
def raising():
    try:
        yield
    except Error as error:
        raise BY_STATUS[error.status](error.text) from None


def to_fields(values):
    return [to_field(name, value) for name, value in values.items()]


class connect(Closing):
    def __init__(self, url, connect_timeout=2.0, deadline=None):
        with raising():
            self.runner = runner.Runner(url, connect_timeout)
        self.seconds = deadline

    def set_deadline(self, seconds):
        self.seconds = seconds or None

    def evaluate(self, features, dtype=None):
        return self.receive(self.send(features, dtype))

    def send(self, features, dtype=None):
        want = "any" if dtype is None else np.dtype(dtype).name
        with raising():
            return self.runner.send(to_fields(features), want, self.seconds)

    def receive(self, ticket):
        with raising():
            fields = self.runner.receive(ticket)
        self.advice = {field.name: to_value(field) for field in fields}
        return next(iter(self.advice.values())) if len(fields) == 1 else self.advice

    def close(self):
        self.runner.close()


class Request(dict):
    def __init__(self, asked, lock):
        super().__init__((field.name, to_value(field)) for field in asked.fields)
        self.asked, self.lock, self.answered = asked, lock, False

    def _answer(self, function, *args):
        self.answered = True
        with self.lock, contextlib.suppress(RunnerGoneError), raising():
            function(*args)

    def reply(self, advice=None, **named):
        named = named or advice if isinstance(advice, dict | None) else {"advice": advice}
        self._answer(self.asked.reply, to_fields(named))

    def fail(self, error):
        self._answer(self.asked.fail, Status.MODEL, f"{type(error).__name__}: {error}")


class Host(host.Host):
    """Another thread may close it."""

    def __init__(self, url, channels=1, slots=4, request_bytes=1 << 20, advice_bytes=1 << 20):
        self.lock, self.closed = threading.RLock(), False
        body = up(request_bytes, 64), up(advice_bytes, 64)
        with raising():
            super().__init__(url, channels, slots, (1 << 16,) * 2, body)

    def __iter__(self):
        while True:
            with self.lock:
                asked = None if self.closed else self.receive(timeout=0.01)
                if self.closed:
                    return
            if asked:
                request = Request(asked, self.lock)
                yield request
                if not request.answered:
                    request._answer(asked.fail, Status.DROPPED, "the host dropped the request")

    def serve(self, model):
        for request in self:
            with contextlib.suppress(ShmbridgeError):  # the runner has it, or is gone
                request.reply(model(request))

    def close(self):
        with self.lock:
            if not self.closed:
                super().close()
            self.closed = True

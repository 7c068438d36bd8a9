"""A combination at work: a host in a thread of this process, a runner in another, both kept from
case to case."""

import contextlib
import os
import signal
import textwrap
import threading
from collections.abc import Mapping
from pathlib import Path

import forms
import numpy as np
import wire
from combinations import RUNNERS
from support.processes import SHM, Process, ScriptedRunner, free_port

from shmbridge import Host, ShmbridgeError
from shmbridge._bridge import segment
from shmbridge._native import ffi

STATUS = {
    code: name.removeprefix("SHMB_") for code, name in ffi.typeof("shmb_status").elements.items()
}
HERE = Path(__file__).parent
ROOM = 2 << 20  # bytes of one message, unless a case wants more
DROP = object()  # what a model returns to leave a request unanswered

# Runs what it is told; it imports before, while there is other work.
WARM = """
    import sys
    import shmbridge
    if line := sys.stdin.readline():
        code, *sys.argv[1:] = eval(line)
        exec(code)
"""


class Failed(Exception):
    """The runner got an error."""

    def __init__(self, status, message, opening=False):
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.opening = status, message, opening


def kept(value):
    """A copy of what may lie in shared memory."""
    if isinstance(value, Mapping):
        return {name: kept(each) for name, each in value.items()}
    return np.copy(value) if isinstance(value, np.ndarray) else value


class Stage:
    """What cases are written against."""

    make_host = Host
    warm = None  # the next Python program, of whatever combination

    def __init__(self, combination, command, folder, new_name):
        self.kind = RUNNERS[combination.runner]
        self.combination, self.command = combination, command
        self.folder, self.new_name = folder, new_name
        self.spill = folder / "spilled"
        self.host = self.thread = self.runner = self.next = self.opened = None
        self.away = False  # the host is the case's own
        self.environment = os.environ | {"PYTHONPATH": str(HERE)}
        self.far = {}  # by the runner's URL, the host's
        self.url = self.new_url()

    def new_url(self, **options):
        """A URL that nobody has opened."""
        words = {
            "name": self.new_name(),
            "folder": self.folder,
            "serdes": self.combination.serdes,
            "port": free_port() if "{port}" in self.kind.url + self.kind.far else 0,
        }
        url = self.kind.url.format(**words)
        if self.kind.far:
            self.far[url] = self.kind.far.format(**words)
        return with_options(url, **options)

    def host_url(self, url=None):
        """What a host opens for runners of that URL."""
        url = url or self.url
        for near, far in self.far.items():
            if url.startswith(near):
                return with_options(
                    far, **dict(part.split("=") for part in url[len(near) + 1 :].split("&") if part)
                )
        return url

    def begin(self, entry):
        """Before each case. entry: of cannot.toml, or None."""
        self.request_form = forms.FORMS[entry.request] if entry and entry.request else None
        self.advice_form = forms.FORMS[entry.advice] if entry and entry.advice else None
        self.error = entry.error if entry else ""
        self.changed = set()  # "request", "advice", "error": where the entry was needed
        self.model, self.seen, self.sent, self.entered = dict, {}, None, threading.Event()

    # ---- Both sides' lives ----

    def ready(self):
        """Host and runner are there, and the runner has opened the host's URL."""
        if self.host is None and not self.away:
            self.start_host()
        if self.opened != self.url:
            self.open(self.url)

    def start_host(self, **room):
        self.host = self.make_host(
            self.host_url(),
            **{"request_bytes": ROOM, "advice_bytes": ROOM, **self.kind.host, **room},
        )
        self.thread = threading.Thread(target=self._serve, args=(self.host,), daemon=True)
        self.thread.start()

    def _serve(self, host):
        for request in host:
            self.seen = kept(request)
            self.entered.set()
            try:
                advice = self.model(request)
                self.sent = kept(advice)
                if isinstance(advice, dict):
                    request.reply(**advice)
                elif advice is not DROP:
                    request.reply(advice)
            except ShmbridgeError:
                pass  # the runner has been told, too
            except Exception as error:
                request.fail(error)
            del request  # what the model left unanswered is dropped

    def host_at(self, url):
        """Another host, not begun: for what it refuses."""
        return self.make_host(self.host_url(url))

    def close_host(self):
        """While its loop is under way."""
        self.host.close()

    def stop_host(self):
        if self.host is not None:
            self.host.close()
            self.thread.join(20)
            assert not self.thread.is_alive(), "the host's loop does not end when it is closed"
        self.host = None

    def open(self, url):
        """Has the runner open a URL."""
        if self.runner is None:
            self.runner = self.next or self._new_runner()
            # For the case that kills this one; it starts while there is other work.
            self.next = self._new_runner()
            self.runner.do("spill", self.spill)
        self.opened = None
        status, _, message = self.runner.do("open", url).partition(" ")
        if int(status):
            raise Failed(STATUS[int(status)], message, opening=True)
        self.opened = url

    def _new_runner(self):
        return ScriptedRunner(*self.command, env=self.environment)

    def close_runner(self):
        if self.opened:
            self.runner.do("close")
        self.opened = None

    def kill_runner(self):
        if self.runner is not None:
            self.runner.kill()
            self.runner.communicate()
        self.runner = self.opened = None

    @contextlib.contextmanager
    def python(self, code, *args):
        """A Python program beside the test, killed at the end of the with block."""
        process, Stage.warm = (
            Stage.warm or Process(WARM, (), cwd=self.folder),
            Process(WARM, (), cwd=self.folder),
        )
        with process:
            process.say(repr((textwrap.dedent(code), *args)))
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                # A killed host's.
                for path in [
                    *SHM.glob(f"shmb.*-{process.pid}-*"),
                    *SHM.glob(f"shmb.test-{os.getpid()}-*"),
                ]:
                    segment.remove_dead(path.name.partition(".")[2])

    @contextlib.contextmanager
    def elsewhere(self, url, **room):
        """Host and runner at another URL; afterwards back to theirs."""
        host, thread, own = self.host, self.thread, self.url
        self.host, self.url, self.away = None, url, True
        try:
            if room:
                self.start_host(**room)
            yield
            self.close_runner()
            self.stop_host()
        finally:
            if self.host is not None:
                self.host.close()
            self.host, self.thread, self.url, self.away = host, thread, own, False

    def end(self):
        """Whatever state they are in."""
        self.kill_runner()
        self.runner, self.next = self.next, None
        self.kill_runner()
        if self.host is not None:
            self.host.close()
            self.thread.join(20)
        self.host = None

    # ---- Ask ----

    def ask(self, features, want=None):
        """Sends features, waits, and returns the advice by name. want: a dtype. Raises Failed."""
        self.send(features, want)
        return self.answer()

    def send(self, features, want=None):
        self._fill(features)
        self.runner.ask("evaluate", wire.CODES[np.dtype(want)] if want is not None else 0)

    def answer(self):
        return wire.parsed(self._checked(self.runner.answer()))

    def post(self, features, want=None):
        """Sends features without waiting: the number to receive their advice by."""
        self._fill(features)
        line = self.runner.do("send", wire.CODES[np.dtype(want)] if want is not None else 0)
        return int(self._checked(line).partition(" ")[2])

    def receive(self, index):
        """The advice, by name, of a question that was posted. Raises Failed."""
        return wire.parsed(self._checked(self.runner.do("receive", index)))

    def ask_scalar(self, how, features):
        """Through evaluate_i64 and its likes ("i64", "i32", "f32", "f64"): a Python number."""
        self._fill(features)
        return wire.number(self._checked(self.runner.do(how)).partition(" ")[2])

    def _fill(self, features):
        self.ready()
        self.seen = {}
        self.entered.clear()
        for name, value in features.items():
            self.runner.do(wire.filled(name, value, self.spill))

    def _checked(self, line):
        status, _, message = line.partition(" ")
        if int(status):
            raise Failed(STATUS[int(status)], message)
        return line

    def deadline(self, seconds):
        """Of later questions; 0: the default."""
        self.ready()
        self.runner.do("deadline", seconds)

    def interrupt(self):
        self.runner.send_signal(signal.SIGINT)

    # ---- Compare ----

    def saw(self, features):
        """The host's model got these features, in this order, and no others."""
        assert list(self.seen) == list(features), (
            f"the model saw {list(self.seen)}, expected {list(features)}"
        )
        for name, value in features.items():
            self._compare("request", self.request_form, name, self.seen[name], value, value)

    def gave(self, found, advice):
        """The runner got this advice, a dict by name, in this order, or a single value, whose name
        does not matter."""
        if not isinstance(advice, dict):
            assert len(found) == 1, f"expected one advice, found {list(found)}"
            found, advice = {"advice": next(iter(found.values()))}, {"advice": advice}
        assert list(found) == list(advice), f"the runner got {list(found)}, expected {list(advice)}"
        for name, value in advice.items():
            sent = (
                self.sent[name] if isinstance(self.sent, dict) and name in self.sent else self.sent
            )
            self._compare("advice", self.advice_form, name, found[name], value, sent)

    def _compare(self, side, form, name, found, expected, sent):
        if wire.same(found, expected):
            return
        other = form(expected, sent) if form else None
        if form and wire.same(found, other):
            self.changed.add(side)
            return
        wanted = f", as {form.__name__} {forms.show(other)}" if form else ""
        raise AssertionError(
            f'{side} "{name}": expected {forms.show(expected)}{wanted}, found {forms.show(found)}'
        )

    def refuses(self, features, want):
        """The advice has no exact counterpart as that dtype, so there is none; unless cannot.toml
        names a form."""
        try:
            found = self.ask(features, want)
        except Failed as failure:
            if failure.status not in ("INEXACT", "MISMATCH"):
                raise
            assert failure.message
            return
        assert self.advice_form, (
            f"expected {forms.show(self.sent)} to be refused as {np.dtype(want)}, found {found}"
        )
        other = self.advice_form(np.empty(np.shape(self.sent), want), self.sent)
        assert wire.same(*found.values(), other), f"expected {forms.show(other)}, found {found}"
        self.changed.add("advice")

    @contextlib.contextmanager
    def fails(self, status, *texts):
        """What is done in the with block gives this status, with a message that holds the texts."""
        try:
            yield
        except Failed as failure:
            if failure.status == self.error:
                self.changed.add("error")
                texts = ()
            elif failure.status not in status.split(" or "):
                raise
            assert failure.message, f"{failure.status} came without a message"
            missing = [text for text in texts if text.casefold() not in failure.message.casefold()]
            assert not missing, (
                f"{failure.status} says {failure.message!r}, expected it to mention {missing}"
            )
        else:
            assert self.error == "none", f"expected {status}, found an answer"
            self.changed.add("error")

    def works(self):
        """One plain question."""
        self.model = lambda request: np.array([8], np.int64)
        found = self.ask({"x": np.array([7], np.int64)}, np.int64)
        assert list(self.seen) == ["x"] and np.array_equal(self.seen["x"], [7]), self.seen
        assert len(found) == 1 and np.array_equal(np.asarray(*found.values()), [8]), found


def with_options(url, **options):
    for name, value in options.items():
        url += f"{'&' if '?' in url else '?'}{name}={value}"
    return url

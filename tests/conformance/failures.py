"""What every combination must do when something goes wrong: models, deadlines, deaths, URLs. More
of CASES."""

import contextlib
import re
import signal
import threading

import numpy as np
import pytest
from cases import case, echoes, family
from stage import DROP, Failed, with_options

from shmbridge import InvalidError, UnsupportedError


@family("model-error", {"short": "no such loop", "utf8": "größe → 大きさ", "long": "why?" * 100})
def model_error(w, text):
    def model(request):
        raise ValueError(text)

    w.model = model
    with w.fails("MODEL", "ValueError", text):
        w.ask({"x": np.array([1], np.int64)}, np.int64)
    w.works()


@case("request-dropped")
def request_dropped(w):
    w.model = lambda request: DROP
    w.send({"x": np.array([1], np.int64)}, np.int64)
    assert w.entered.wait(20)
    with w.fails("DROPPED"):
        w.answer()
    w.works()


class Slow:
    """A model that echoes once `go` is set."""

    def __init__(self, w):
        self.go = threading.Event()
        w.model = self

    def __call__(self, request):
        advice = {name: np.copy(value) for name, value in request.items()}
        assert self.go.wait(30)
        return advice

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go.set()


@case("deadline")
def deadline(w):
    w.deadline(0.05)
    with Slow(w) as slow:
        with w.fails("TIMEOUT"):
            w.ask({"x": np.array([1], np.int64)}, np.int64)
        with w.fails("TIMEOUT", "not asked"):
            w.ask({"x": np.array([1], np.int64)}, np.int64)
        w.deadline(0)
        slow.go.set()
    for i in range(2, 6):
        echoes(w, np.array([i], np.int64))


@case("deadline-again-and-again")
def deadline_again_and_again(w):
    """Several late replies, of other shapes than the answer that counts."""
    w.deadline(0.05)
    for i in range(1, 4):
        with Slow(w), w.fails("TIMEOUT"):
            w.ask({"x": np.arange(100 * i, dtype=np.int64)}, np.int64)
    w.deadline(0)
    echoes(w, np.array([7], np.int64))
    echoes(w, np.array([1.5, 2.5]))


@case("interrupt")
def interrupt(w):
    with Slow(w):
        w.send({"x": np.array([1], np.int64)}, np.int64)
        assert w.entered.wait(20)
        w.interrupt()
        with w.fails("INTERRUPTED"):
            w.answer()
    w.works()


HOST = """
    import sys, time
    from shmbridge import Host
    with Host(sys.argv[1]) as host:
        print("ready", flush=True)
        for request in host:
            print("asked", flush=True)
            time.sleep(60)
"""


@case("host-dies")
def host_dies(w):
    with w.elsewhere(w.new_url()):
        with w.python(HOST, w.host_url()) as host:
            assert host.line() == "ready"
            w.send({"x": np.array([1], np.int64)}, np.int64)
            assert host.line() == "asked"
            host.kill()
            with w.fails("HOST_GONE"):
                w.answer()
            with w.fails("HOST_GONE"):  # and for good
                w.ask({"x": np.array([1], np.int64)}, np.int64)
        w.start_host()  # takes over what is left
        w.opened = None
        w.works()


FIRST = """
    import sys
    from shmbridge import Host
    with Host(sys.argv[1]) as host:
        print("ready", flush=True)
        for request in host:
            request.reply(request["x"][:1])
"""


@contextlib.contextmanager
def stopped_with_half_a_request(w):
    """A host in another process, stopped; it has answered one request, and another, too late now,
    may be there in half."""
    with w.elsewhere(w.new_url()), w.python(FIRST, w.host_url()) as host:
        assert host.line() == "ready"
        w.gave(w.ask({"x": np.array([1.5, 2.5])}, np.float64), np.array([1.5]))
        w.deadline(0.1)
        host.send_signal(signal.SIGSTOP)
        with w.fails("TIMEOUT"):
            w.ask({"x": np.arange(100_000, dtype=np.float64)}, np.float64)
        w.deadline(0)
        yield host


@case("host-stops")
def host_stops(w):
    """A stopped host is not dead."""
    with stopped_with_half_a_request(w) as host:
        host.send_signal(signal.SIGCONT)
        for i in range(3):
            w.gave(w.ask({"x": np.array([i + 0.5])}, np.float64), np.array([i + 0.5]))


@case("runner-dies-while-the-host-is-stopped")
def runner_dies_while_the_host_is_stopped(w):
    with stopped_with_half_a_request(w) as host:
        w.kill_runner()
        host.send_signal(signal.SIGCONT)
        # In a pipe, what comes right behind half a request of a dead runner is refused.
        with contextlib.suppress(Failed):
            w.ask({"x": np.array([1.0])}, np.float64)
        w.close_runner()
        for i in range(3):
            w.gave(w.ask({"x": np.array([i + 0.5])}, np.float64), np.array([i + 0.5]))


@case("host-closes")
def host_closes(w):
    with Slow(w):
        w.send({"x": np.array([1], np.int64)}, np.int64)
        assert w.entered.wait(20)
        w.close_host()
        with w.fails("CLOSED"):
            w.answer()
    w.stop_host()
    w.opened = None
    w.works()


@case("host-closes-between-requests")
def host_closes_between_requests(w):
    w.works()
    w.stop_host()
    w.start_host()
    with w.fails("CLOSED"):
        w.ask({"x": np.array([1], np.int64)}, np.int64)
    w.opened = None
    w.works()


@case("runner-dies")
def runner_dies(w):
    with Slow(w):
        w.send({"x": np.array([1], np.int64)}, np.int64)
        assert w.entered.wait(20)
        w.kill_runner()
    w.works()


@case("runner-dies-between-requests")
def runner_dies_between_requests(w):
    w.works()
    w.kill_runner()
    w.works()


@case("runner-leaves-and-comes-back")
def runner_leaves_and_comes_back(w):
    for _ in range(3):
        w.works()
        w.close_runner()
    w.works()


def without_serdes(url, **options):
    return with_options(re.sub(r"[?&]serdes=\w+", "", url), **options)


# Of each: the status, a word of the message, and the URL.
REFUSED = {
    "no-host": ("NO_HOST", "", lambda w: w.new_url(connect_timeout=0.1)),
    "unknown-option": ("INVALID", "nonsense", lambda w: with_options(w.url, nonsense=1)),
    "bad-option": ("INVALID", "deadline=soon", lambda w: with_options(w.url, deadline="soon")),
    "unknown-serdes": (
        "INVALID or UNSUPPORTED",
        "serdes",
        lambda w: without_serdes(w.url, serdes="nonsense"),
    ),
    "unknown-scheme": ("UNSUPPORTED", "nonsense", lambda w: "nonsense://x"),
}


def refused(w, status, word, url):
    w.ready()
    with w.fails(status, word):
        w.open(url(w))
    w.works()


for name, arguments in REFUSED.items():
    case(name, *arguments)(refused)


@case("host-unknown-option")
def host_unknown_option(w):
    w.ready()
    with pytest.raises(InvalidError, match="nonsense"):
        w.host_at(with_options(w.new_url(), nonsense=1))
    w.works()


@case("host-unknown-serdes")
def host_unknown_serdes(w):
    w.ready()
    with pytest.raises((InvalidError, UnsupportedError), match="(?i)serdes"):
        w.host_at(without_serdes(w.new_url(), serdes="nonsense"))
    w.works()

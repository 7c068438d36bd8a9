"""Arrays of a request lie in shared memory, and stay valid and unchanged for as long as they are
kept."""

import gc
import threading

import numpy as np
import pytest
from support.requests import attached, in_segment

from shmbridge import Host, InvalidError, connect


@pytest.fixture
def lane(name, in_thread):
    """lane(slots=…): (host, ask); ask(i) is one request of arrays that all hold i, taken by hand,
    unanswered."""
    hosts, calls, runners = [], [], []

    def start(**options):
        host = Host(name, **options)
        runner = attached(in_thread, host)
        hosts.append(host)
        runners.append(runner)

        def ask(i, **more):
            call = in_thread(runner.evaluate, {"x": np.full(1000, i), "s": f"text {i}", **more})
            calls.append(call)
            return host.receive(timeout=30), call

        return host, ask

    yield start
    for host in hosts:
        host.close()
    for call in calls:
        call.join()
    for runner in runners:
        runner.close()


DERIVE = {
    "the array": lambda x: x,
    "a slice": lambda x: x[3:7],
    "a transpose": lambda x: x.reshape(10, 100).T,
    "another dtype": lambda x: x.view(np.uint8),
    "asarray": np.asarray,
    "a subclass": lambda x: x.view(type("Mine", (np.ndarray,), {})),
    "a memoryview": lambda x: memoryview(x),
    "an iterator": lambda x: x.flat,
    "dlpack": lambda x: np.from_dlpack(x),
    "a capsule": lambda x: x.__dlpack__(),
    "a closure": lambda x: lambda: x,
    "ctypes": lambda x: x.ctypes,
    "torch": lambda x: pytest.importorskip("torch").from_numpy(x)[2:],
    "torch through dlpack": lambda x: pytest.importorskip("torch").from_dlpack(x),
}


@pytest.mark.parametrize("derive", DERIVE.values(), ids=DERIVE.keys())
def test_whatever_derives_from_an_array_keeps_its_bytes(lane, derive):
    host, ask = lane(slots=4)
    request, call = ask(7)
    array = request["x"]
    assert in_segment(host, array)
    kept = derive(array)
    copy = array.copy()
    memory = np.frombuffer(host._memory, np.uint8)
    start = array.ctypes.data - memory.ctypes.data
    watcher = memory[start : start + array.nbytes].copy
    del array
    request.reply(0)
    call.result()
    del request
    for i in range(20):
        other, call = ask(100 + i)
        assert other["x"][0] == 100 + i
        other.reply(i)
        call.result()
        del other
    assert watcher().tobytes() == copy.tobytes()
    del kept


def test_a_slot_goes_back_when_its_last_view_dies(lane):
    host, ask = lane(slots=4)
    request, call = ask(1)
    kept = request["x"][::2]
    request.reply(0)
    call.result()
    del kept
    for i in range(3):
        request, call = ask(i)
        assert in_segment(host, request["x"])
        request.reply(0)
        call.result()


def test_kept_lists_keep_their_values_too(serve):
    kept = []

    def model(request):
        kept.append((request["ragged"], request["ragged"][1], request["text"], request["texts"]))
        return 0

    with serve(model, slots=4) as host, connect(host.url) as runner:
        for i in range(50):
            runner.evaluate({"ragged": [[i, i], [i]], "text": f"text {i}", "texts": [f"{i}", "b"]})
    for i, (ragged, row, text, texts) in enumerate(kept):
        assert [r.tolist() for r in ragged] == [[i, i], [i]] and row.tolist() == [i]
        assert text == f"text {i}" and texts == [f"{i}", "b"]


def test_arrays_outlive_the_request_the_runner_and_the_host(name, in_thread):
    host = Host(name, slots=4)
    call = in_thread(lambda: connect(name).evaluate({"x": np.arange(1000)}))
    request = host.receive()
    kept, part = request["x"], request["x"][10:20]
    assert in_segment(host, kept)
    request.reply(0)
    call.result()
    del request, call
    host.close()
    del host
    gc.collect()
    assert kept.tolist() == list(range(1000)) and part.tolist() == list(range(10, 20))
    kept[0] = 5  # ours to write
    assert kept[0] == 5


def test_without_kept_arrays_nothing_is_copied(serve):
    places = []

    def model(request):
        places.append(in_segment(host, request["x"]))
        return 0

    with serve(model) as host, connect(host.url) as runner:
        for _ in range(100):
            runner.evaluate({"x": np.arange(10)})
    assert all(places)


def test_after_the_reply_a_request_says_no_and_its_arrays_stay(lane):
    _, ask = lane()
    request, call = ask(3)
    x = request["x"]
    request.reply(1)
    assert call.result() == 1
    for forbidden in (
        lambda: request["x"],
        lambda: request["s"],
        lambda: request.reply(2),
        lambda: request.fail("x"),
    ):
        with pytest.raises(InvalidError, match="has been answered"):
            forbidden()
    assert x[0] == 3 and "answered" in repr(request) and list(request) == ["x", "s"]


def test_a_request_is_a_mapping(lane):
    _, ask = lane()
    request, call = ask(3, n=1)
    assert (
        len(request) == 3
        and list(request) == ["x", "s", "n"]
        and "x" in request
        and "y" not in request
    )
    assert (
        request.get("y", 5) == 5 and dict(request)["s"] == "text 3" and request["x"] is request["x"]
    )
    assert request.signature == "x: int64[1000], s: str, n: int64[]"
    with pytest.raises(KeyError, match="'y'; there are: x: int64"):
        request["y"]
    with pytest.raises(KeyError, match=r"no feature 'xs'; did you mean '[xs]'\?"):
        request["xs"]
    with pytest.raises(KeyError, match="run with --include-default"):
        request["inlining_default"]
    request.reply(0)
    call.result()


def test_a_request_that_is_kept_is_not_used_for_another(serve):
    kept = []

    def model(request):
        kept.append(request)
        return len(kept)

    with serve(model) as host, connect(host.url) as runner:
        for i in range(10):
            runner.evaluate({"x": i})
    assert len({id(request) for request in kept}) == 10


# ---- Bound channels ----


def test_on_a_bound_channel_arrays_are_copies(name, c_runner):
    with Host(name, slots=4) as host:
        runner = c_runner()
        runner.ask("open", name)
        while not host.runners:
            host.receive(timeout=0.01)
        assert runner.answer().startswith("0")
        runner.do("bind", "a", 5, 1, 2)
        runner.do("bind", "b", 11, 0)
        addresses = runner.do("address", "a"), runner.do("address", "b")
        kept = []
        for i in range(20):
            runner.do("write", "a", np.array([i, -i]).tobytes().hex())
            runner.ask("i64")
            request = host.receive(timeout=30)
            kept.append(request["a"])
            assert not in_segment(host, request["a"]) and request["a"].tolist() == [i, -i]
            request.reply(i)
            assert runner.answer() == f"0 {i}"
        assert (runner.do("address", "a"), runner.do("address", "b")) == addresses
        assert [x.tolist() for x in kept] == [[i, -i] for i in range(20)]
        runner.do("feature", "c", 5, 0, bytes(8).hex())
        assert runner.do("i64").startswith("1 ")  # all are bound, or none


# ---- Threads ----


def test_views_that_die_while_another_thread_replies_lose_no_slot(name, in_thread):
    """Kept arrays of many requests, dropped at any moment relative to the reply."""
    with Host(name, slots=4, channels=1) as host:

        def ask():
            with connect(name) as runner:
                for i in range(2000):
                    assert runner.evaluate({"x": np.full(10, i)}) == [i]

        asking = in_thread(ask)
        kept, lock = [], threading.Lock()

        def reply(request, i):
            with lock:
                kept.append(request["x"])
            request.reply([i])

        for i in range(2000):
            request = host.receive(timeout=30)
            answering = threading.Thread(target=reply, args=(request, i))
            del request
            answering.start()
            with lock:
                del kept[: i % 3]
            answering.join()
        asking.result()
        kept.clear()
        while host.runners:
            host.receive(timeout=0.05)
        asking = in_thread(lambda: connect(name).evaluate({"x": [1]}))
        request = host.receive(timeout=30)
        assert in_segment(host, request["x"])
        request.reply(0)
        asking.result()

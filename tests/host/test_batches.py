"""Several compilers, one forward pass."""

from functools import partial

import numpy as np
import pytest
from support.processes import until
from support.requests import attached, in_segment

from shmbridge import Host, connect
from shmbridge._native import lib
from shmbridge.errors import ClosedError, DeadlineError, DroppedError, InvalidError, ModelError


@pytest.fixture
def host(name):
    with Host(name, channels=8) as host:
        yield host


@pytest.fixture
def runners(host, in_thread):
    """runners(n): that many, attached."""
    opened = []

    def open_runners(n):
        while len(opened) < n:
            opened.append(attached(in_thread, host))
        return list(opened)

    yield open_runners
    for runner in opened:
        runner.close()


def test_a_batch_ends_once_every_attached_runner_has_asked(host, runners, in_thread):
    """max_wait is a day: the test would not live to see it."""
    several = runners(3)
    for k in range(3):
        asking = [
            in_thread(runner.evaluate, {"x": np.full(4, 10 * k + i)})
            for i, runner in enumerate(several)
        ]
        batch = next(host.batches(max_size=8, max_wait=86400))
        assert len(batch) == 3 and batch["x"].shape == (3, 4) and batch["x"].dtype == np.int64
        batch.reply(batch["x"].sum(axis=1))
        assert [call.result() for call in asking] == [4 * (10 * k + i) for i in range(3)]


def test_by_default_a_batch_waits_for_nobody(host, runners, in_thread):
    asker, _ = runners(2)  # the other does not ask
    asking = in_thread(lambda: [asker.evaluate({"x": i}) for i in range(50)])
    for _, batch in zip(range(50), host.batches(), strict=False):
        assert len(batch) == 1
        batch.reply(batch["x"])
    assert asking.result() == list(range(50))


def test_a_batch_that_is_kept_waits_as_long_as_the_next(host, runners, in_thread):
    """What somebody keeps does not change how others are collected: max_wait is a day."""
    several, kept = runners(2), []
    batches = host.batches(max_wait=86400)
    for i in range(3):
        asking = [in_thread(runner.evaluate, {"x": i}) for runner in several]
        kept.append(next(batches))
        assert len(kept[-1]) == 2
        kept[-1].reply(kept[-1]["x"])
        assert [call.result() for call in asking] == [i, i]


def test_a_batch_belongs_to_who_refers_to_it(host, runners, in_thread):
    """The first is answered after the second, the third not at all."""
    (first, second, third), batches = runners(3), host.batches(max_size=1)
    asking, kept = [], []
    for i, runner in enumerate((first, second, third)):
        asking.append(in_thread(runner.evaluate, {"x": i}))
        kept.append(next(batches))
    kept[1].reply(kept[1]["x"])
    kept[0].reply(kept[0]["x"])
    assert [call.result() for call in asking[:2]] == [0, 1]
    requests = kept[2].requests
    kept.clear()
    assert repr(requests[0]) == "<Request x: int64[]>"
    requests.clear()
    with pytest.raises(DroppedError):
        asking[2].result()


def test_small_arrays_stay_as_they_are_while_they_are_kept(host, runners, in_thread):
    """Layouts alternate: the same names and sizes, at other positions and with other dtypes."""
    (asker,) = runners(1)
    layouts = [lambda i: {"x": [i, i], "y": [i + 0.5] * 2}, lambda i: {"y": [-i, -i], "x": [i, i]}]
    features = [layouts[i // 3 % 2](i) for i in range(30)]
    asking = in_thread(lambda: [asker.evaluate(each) for each in features])
    kept = []
    for batch in host.batches():  # not by zip, which would hold the batch
        x, y = batch["x"], batch["y"]
        assert batch["x"] is x
        batch.reply(x)
        kept.append((x, y) if len(kept) % 2 else (x.copy(), y.copy()))
        if len(kept) == 30:
            break
    assert [advice.tolist() for advice in asking.result()] == [[i, i] for i in range(30)]
    assert [(x.tolist(), y.tolist()) for x, y in kept] == [
        ([each["x"]], [each["y"]]) for each in features
    ]


def test_batches_again_and_again(host, runners, in_thread):
    several = runners(4)

    def ask(k):
        return [
            several[k].evaluate({"x": np.full(3, 1000 * k + i), "s": f"{k} {i}"})
            for i in range(100)
        ]

    asking = [in_thread(ask, k) for k in range(4)]
    sizes = []
    answered = 0
    for batch in host.batches(max_size=8, max_wait=5e-3):
        sizes.append(len(batch))
        x = batch["x"]
        assert (
            x.shape == (len(batch), 3)
            and len(batch["s"]) == len(batch)
            and list(batch) == ["x", "s"]
        )
        batch.reply({"value": x[:, 0]}, text=[f"<{s}>" for s in batch["s"]])
        answered += len(batch)
        if answered == 400:
            break
    for k, call in enumerate(asking):
        assert call.result() == [{"value": 1000 * k + i, "text": f"<{k} {i}>"} for i in range(100)]
    assert max(sizes) > 1


def take(host, runners, in_thread, features, **options):
    """One batch of these features, one runner each: (batch, calls in the batch's order)."""
    asking = [
        in_thread(runner.evaluate, f)
        for runner, f in zip(runners(len(features)), features, strict=True)
    ]
    batch = next(host.batches(max_wait=60, **options))
    return batch, asking


def test_rows_are_copies_which_stay_when_the_slots_are_used_again(host, runners, in_thread):
    several = runners(3)
    asking = [
        in_thread(each.evaluate, {"x": np.full(3000, i), "y": i}) for i, each in enumerate(several)
    ]
    batch = next(host.batches(max_wait=60))
    x = batch["x"]
    assert x is batch["x"] and x.flags.c_contiguous and not in_segment(host, x)
    batch.reply(x[:, 0])
    assert [call.result() for call in asking] == [0, 1, 2]
    with pytest.raises(InvalidError, match="answered"):
        batch["y"]
    del batch
    later = [in_thread(each.evaluate, {"x": np.full(3000, 9), "y": 9}) for each in several]
    next(host.batches(max_wait=60)).reply([1] * 3)
    assert [call.result() for call in later] == [1] * 3
    assert sorted(map(set, x.tolist()), key=min) == [{0}, {1}, {2}]


def test_a_batch_holds_requests_of_one_signature_and_others_wait(host, runners, in_thread):
    several = runners(5)
    shapes = [(2,), (3,), (2,), (3,), (2, 1)]
    asking = [
        in_thread(runner.evaluate, {"x": np.zeros(shape)})
        for runner, shape in zip(several, shapes, strict=True)
    ]
    seen = []
    for batch in host.batches(max_wait=0.2):
        assert all(request.signature == batch.requests[0].signature for request in batch.requests)
        seen += [batch["x"].shape[1:]] * len(batch)
        batch.reply([str(shape) for shape in seen[-len(batch) :]])
        if len(seen) == 5:
            break
    assert sorted(seen) == sorted(shapes)
    assert [call.result() for call in asking] == [str(shape) for shape in shapes]


def test_a_batch_has_at_most_max_size_requests(host, runners, in_thread):
    asking = [in_thread(runner.evaluate, {"x": i}) for i, runner in enumerate(runners(5))]
    answered = 0
    for batch in host.batches(max_size=2, max_wait=0.2):
        assert len(batch) <= 2
        batch.reply(batch["x"])
        answered += len(batch)
        if answered == 5:
            break
    assert [call.result() for call in asking] == list(range(5))
    with pytest.raises(InvalidError, match="max_size=0"):
        next(host.batches(max_size=0))


def test_a_values_own_code_may_change_the_dict_that_it_is_in(host, runners, in_thread):
    junk = []

    class Value:
        def __dlpack__(self):
            raise BufferError

        def numpy(self):
            advice.clear()
            junk.extend(str(i).rjust(40) for i in range(100))  # where the name was
            return np.zeros((), np.int64)

    batch, asking = take(host, runners, in_thread, [{"x": 1}])
    advice = {"b".ljust(40, "b"): [1], "value": [Value()]}
    batch.reply(advice)
    assert asking[0].result() == {"b" * 40: 1, "value": 0}


def test_a_reply_needs_a_row_for_each_request_and_else_none_is_answered(host, runners, in_thread):
    batch, asking = take(host, runners, in_thread, [{"x": i} for i in range(2)])
    for bad in ([1], [1, 2, 3], np.zeros((3, 2)), np.float32(1), 5, {"a": [1, 2], "b": [1]}):
        with pytest.raises(InvalidError, match="expected 2 rows, one for each request"):
            batch.reply(**bad) if isinstance(bad, dict) else batch.reply(bad)
    with pytest.raises(InvalidError, match="expected advice"):
        batch.reply()
    batch.reply(a=batch["x"], b=["zero", "one"])
    assert {call.result()["b"] for call in asking} == {"zero", "one"}


def test_rows_may_be_arrays_lists_or_dlpack(host, runners, in_thread):
    several = runners(2)
    for advice, expected in [
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([0.5, 1.5], "f4"), [0.5, 1.5]),
        (np.array([True, False]), [True, False]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (("a", "b"), ["a", "b"]),
        ([["a"], ["b", "c"]], [["a"], ["b", "c"]]),
    ]:
        asking = [in_thread(runner.evaluate, {"x": i}) for i, runner in enumerate(several)]
        batch = next(host.batches(max_wait=60))
        order = batch["x"].tolist()
        batch.reply(advice)
        found = [call.result() for call in asking]
        plain = [f.tolist() if isinstance(f, np.ndarray) else f for f in found]
        assert [plain[i] for i in order] == expected


def outcome(ask):
    """Its advice, or the text of its error."""
    try:
        return np.asarray(ask()).tolist()
    except ModelError as error:
        return str(error)


def test_an_exception_that_leaves_a_batchs_block_is_its_answer(host, runners, in_thread):
    batch, asking = take(host, runners, in_thread, [{"x": i} for i in range(3)])
    batch.requests[1].reply("fine")
    with pytest.raises(KeyError), batch:
        raise KeyError("why")
    outcomes = [outcome(call.result) for call in asking]
    assert sum(each == "fine" for each in outcomes) == 1
    assert sum(each.endswith("KeyError: 'why'") for each in outcomes) == 2


def test_lists_of_a_runner_that_has_gone_are_in_no_batch(host, runners, in_thread):
    """It gives up while its batch waits for a second request."""
    (asker,) = runners(1)
    filling = in_thread(next, host.batches(max_size=2, max_wait=86400))
    with connect(host.url) as runner, pytest.raises(DeadlineError):
        runner.set_deadline(0.2)
        runner.evaluate({"texts": ["gone"]})
    until(lambda: host.runners == 1)
    asking = in_thread(asker.evaluate, {"texts": ["here"]})
    batch = filling.result()
    assert batch["texts"] == [["here"]]
    batch.reply([1])
    assert asking.result() == 1


def test_closing_the_host_ends_the_wait_for_more(host, runners, in_thread):
    asking = [in_thread(runner.evaluate, {"x": 1}) for runner in runners(2)[:1]]
    batches = in_thread(next, host.batches(max_wait=86400))
    until(lambda: lib.shmb_host_waiting(host._h))  # the host has the first request
    host.close()
    batch = batches.result()
    assert len(batch) == 1
    with pytest.raises(ClosedError):
        batch.reply([1])
    with pytest.raises(ClosedError):
        asking[0].result()


def test_serve_in_batches_answers_and_survives_the_models_errors(serve, in_thread):
    def model(batch):
        if (batch["x"] == 3).any():
            raise ValueError("three")
        return {"y": batch["x"] * 2}

    def ask(k):
        with connect(host.url) as runner:
            return [outcome(partial(runner.evaluate, {"x": np.full(2, i)})) for i in range(30)]

    with serve(model, max_batch=4, max_wait=1e-3) as host:
        for call in [in_thread(ask, k) for k in range(3)]:
            outcomes = call.result()
            assert outcomes[3].endswith(": ValueError: three")
            assert all(each in ([2 * i] * 2, outcomes[3]) for i, each in enumerate(outcomes))


def test_a_batch_has_as_many_rows_as_len_says_and_is_else_a_mapping_of_features(
    host, runners, in_thread
):
    batch, asking = take(host, runners, in_thread, [{"x": i, "s": "a"} for i in range(3)])
    assert len(batch) == 3 and len(np.ones(len(batch))) == len(batch["x"])
    assert list(batch) == list(batch.keys()) == ["x", "s"] and "x" in batch and "y" not in batch
    assert len(batch.keys()) == len(batch.items()) == len(batch.values()) == len(dict(batch)) == 2
    assert dict(batch)["s"] == ["a"] * 3 and (lambda x, s: sorted(x.tolist()))(**batch) == [0, 1, 2]
    assert dict(batch.items()).keys() == batch.keys() and batch.get("y") is None
    assert repr(batch) == "<Batch of 3: x: int64[], s: str>"
    batch.reply([0] * 3)
    for call in asking:
        call.result()

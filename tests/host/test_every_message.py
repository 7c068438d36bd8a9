"""Whatever one runner may legally send, the host's loop gets an array or never sees it, and goes on
to the next."""

import math
import sys
import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shmbridge
from shmbridge._host.batch import Batch
from shmbridge._native import ffi, lib
from shmbridge._values import dtypes, tensor
from shmbridge.logs import LogWriter

TEBI = 1 << 40  # the largest slot
ROOM = 1 << 16  # of a request
SIZES = st.sampled_from([0, 0, 1, 2, 3, 1 << 20, TEBI, 1 << 62, (1 << 63) - 1])
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=6
)
PENDING = -1
LIKE_A_SPEC = "a: float32[1], b"
SHORT = st.lists(st.integers(0, 3), max_size=3)
FIELD = st.tuples(
    NAMES | st.sampled_from(["a", "b", LIKE_A_SPEC, "context", "advice"]),
    st.sampled_from(["tensor", "tensor", "ragged", "text", "texts"]),
    st.integers(lib.SHMB_BOOL, lib.SHMB_BFLOAT16),
    st.lists(SIZES, max_size=lib.SHMB_MAX_RANK),
    SHORT,
    st.binary(max_size=70),
)
MESSAGE = st.tuples(
    st.lists(FIELD, max_size=4, unique_by=lambda field: field[0]),
    st.integers(lib.SHMB_ANY, lib.SHMB_BFLOAT16),
)


def fill(memory, code, count):
    """Bools alone: other bytes than 0 and 1 are no message of Protobuf's, and what was in the
    memory before may be any."""
    if memory != ffi.NULL and code == lib.SHMB_BOOL and count <= ROOM:  # else it is refused
        ffi.memmove(memory, bytes(count), count)


def add(runner, field):
    """One feature, as a compiler adds it: what is wrong with it sticks until evaluate."""
    text, kind, code, dims, lengths, data = field
    name = text.encode()
    if kind == "text":
        lib.shmb_set_string(runner._r, name, data, len(data))
    elif kind == "texts":
        texts = [ffi.from_buffer(data), ffi.from_buffer(b"\xff")]
        lib.shmb_set_strings(
            runner._r, name, 2, ffi.new("char *[]", texts), ffi.new("int64_t[]", [len(data), 1])
        )
    elif kind == "ragged":
        rank = 1 + len(dims[:7])
        memory = lib.shmb_feature_ragged(
            runner._r, name, code, len(lengths), lengths, rank, dims[:7] or ffi.NULL
        )
        fill(memory, code, sum(lengths) * math.prod(dims[:7]))
    else:
        memory = lib.shmb_feature(runner._r, name, code, len(dims), dims or ffi.NULL)
        fill(memory, code, math.prod(dims))


def begin(runner, message):
    fields, want = message
    for field in fields:
        add(runner, field)
    return int(lib.shmb_runner_start(runner._r, want))


def end(runner, status):
    """How it ended: "" or the error's text."""
    status = status or PENDING
    while status == PENDING:
        status = lib.shmb_runner_continue(runner._r)
    assert status not in (
        lib.SHMB_TIMEOUT,
        lib.SHMB_CLOSED,
        lib.SHMB_CORRUPT,
        lib.SHMB_MODEL,
        lib.SHMB_DROPPED,
    )
    return ffi.string(lib.shmb_error_message(runner._r)).decode(errors="replace") if status else ""


def read(question):
    """All that a model may look at."""
    str(question)
    for value in question.values():
        repr(value)
    for request in getattr(question, "requests", [question]):
        str(request.wanted), request.signature, dict(request)
    return np.zeros(len(question), np.int64) if isinstance(question, Batch) else 0


@contextmanager
def looping(host, batch, log):
    """A user's loop in a thread, which must not end before the host is closed."""
    ended = []

    def loop():
        try:
            for question in host.batches(batch, 0.02) if batch > 1 else host:
                asked = [dict(request) for request in getattr(question, "requests", [question])]
                question.reply(read(question))
                for features in asked:
                    log.record(features, {"advice": 0})
        except BaseException as error:
            ended.append(error)
            host.close()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        host.close()
        thread.join()
        if ended:
            raise ended[0]


@pytest.fixture(params=["with ml_dtypes", "without ml_dtypes"])
def bfloat16(request, monkeypatch):
    """Does this Python have the dtype?"""
    if request.param == "without ml_dtypes":
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        monkeypatch.delitem(dtypes.DTYPE_OF_CODE, lib.SHMB_BFLOAT16, raising=False)
        return False
    return True


def check(host, batch, tmp_path, examples):
    with ExitStack() as stack:
        log = stack.enter_context(LogWriter(tmp_path / "log", warn=lambda _text: None))
        stack.enter_context(looping(host, batch, log))
        runners = [
            stack.enter_context(shmbridge.connect(host.url, deadline=20)) for _ in range(batch)
        ]

        @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
        @given(
            st.lists(MESSAGE, min_size=batch, max_size=batch)
            | MESSAGE.map(lambda message: [message] * batch)
        )
        def every_message(messages):
            begun = [
                (runner, begin(runner, message))
                for runner, message in zip(runners, messages, strict=True)
            ]
            for runner, status in begun:
                end(runner, status)

        every_message()


@pytest.mark.parametrize("batch", [1, 2])
def test_the_loop_goes_on_whatever_a_message_holds(name, batch, tmp_path, bfloat16):
    with shmbridge.Host(name, request_bytes=ROOM) as host:
        check(host, batch, tmp_path, 150)


@pytest.mark.parametrize("serdes", ["flatbuffers", "json", "protobuf"])
def test_the_loop_goes_on_whatever_comes_through_a_pipe(serdes, tmp_path, bfloat16):
    with shmbridge.Host(f"pipe://{tmp_path}/p?serdes={serdes}", request_bytes=ROOM) as host:
        check(host, 1, tmp_path, 50)


def sent(host, message):
    with shmbridge.connect(host.url, deadline=20) as runner:
        return end(runner, begin(runner, message))


@pytest.mark.parametrize("advice", [0.5, [0.5], "text"], ids=["number", "array", "text"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_dtype_that_the_advice_does_not_fit_is_an_error_of_the_runner_and_told_once(
    name, batch, advice, caplog, in_thread
):
    def loop():
        for question in host.batches(batch) if batch > 1 else host:
            question.reply([advice] if batch > 1 else advice)

    with shmbridge.Host(name) as host:
        call = in_thread(loop)
        with shmbridge.connect(name, deadline=20) as runner:
            for _ in range(3):
                with pytest.raises(
                    (shmbridge.InexactError, shmbridge.MismatchError),
                    match="which the runner asked|the runner asked for a number",
                ):
                    runner.evaluate({"x": 1}, dtype="int64")
            assert runner.evaluate({"x": 1}) == advice
        host.close()
        call.result()
    assert [record.name for record in caplog.records] == ["shmbridge"]


HUGE = [1 << 62, 1 << 62, 0]


@pytest.mark.parametrize("kind", ["tensor", "ragged"])
def test_dims_that_numpy_refuses_are_an_error_of_the_runner(name, kind, tmp_path):
    with shmbridge.Host(name) as host, LogWriter(tmp_path / "log") as log, looping(host, 1, log):
        assert '"x": expected dims' in sent(
            host, ([("x", kind, lib.SHMB_FLOAT32, HUGE, [], b"")], 0)
        )
        assert not sent(host, ([("x", kind, lib.SHMB_FLOAT32, [3, 0, 4], [], b"")], 0))


def test_bfloat16_is_an_error_of_the_runner_where_this_python_lacks_it(name, bfloat16, tmp_path):
    with shmbridge.Host(name) as host, LogWriter(tmp_path / "log") as log, looping(host, 1, log):
        why = sent(host, ([("x", "tensor", lib.SHMB_BFLOAT16, [2], [], b"")], 0))
        assert bfloat16 != ("pip install shmbridge[bfloat16]" in why)
        assert not sent(
            host, ([("x", "tensor", lib.SHMB_FLOAT32, [2], [], b"")], lib.SHMB_BFLOAT16)
        )


@pytest.mark.parametrize("value", [0.0, 1.5, -2, 3e38, float("inf"), float("nan"), 0.1, 257, 1e300])
def test_advice_is_bfloat16_exactly_or_not_at_all_with_or_without_the_dtype(value, monkeypatch):
    field = tensor.as_field("advice", np.array([value, 1]))
    with_it = tensor.exactly(field, lib.SHMB_BFLOAT16)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(dtypes.DTYPE_OF_CODE, lib.SHMB_BFLOAT16, raising=False)
    without = tensor.exactly(field, lib.SHMB_BFLOAT16)
    assert (with_it is None) == (without is None)
    assert with_it is None or with_it.values.tobytes() == without.values.tobytes()


def test_runners_whose_messages_only_read_alike_are_never_in_one_batch(name, tmp_path):
    two = [
        ("a", "tensor", lib.SHMB_FLOAT32, [1], [], b""),
        ("b", "tensor", lib.SHMB_FLOAT32, [2], [], b""),
    ]
    one = [("a: float32[1], b", "tensor", lib.SHMB_FLOAT32, [2], [], b"")]
    with ExitStack() as stack:
        host = stack.enter_context(shmbridge.Host(name))
        log = stack.enter_context(LogWriter(tmp_path / "log"))
        stack.enter_context(looping(host, 2, log))
        runners = [stack.enter_context(shmbridge.connect(name, deadline=20)) for _ in range(2)]
        begun = [(r, begin(r, (fields, 0))) for r, fields in zip(runners, (two, one), strict=True)]
        assert [end(*each) for each in begun] == ["", ""]

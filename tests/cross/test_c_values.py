"""C → Python → C: what a C runner sends is what the model sees, and what the model answers is what
C reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ScriptedRunner
from support.values import DTYPES, arrays, many, ragged, texts

import shmbridge
from shmbridge._native import lib
from shmbridge._values import tensor

TENSOR, STRING, STRINGS, RAGGED = range(4)
CODES = {dtype.name: i + 1 for i, dtype in enumerate(DTYPES)}


@pytest.fixture(scope="module")
def host(new_name):
    """Answers with the features, and keeps what it saw in host.seen."""
    with shmbridge.Host(new_name(), request_bytes=1 << 20, advice_bytes=1 << 20) as host:

        def model(request):
            host.seen = {
                name: np.copy(value) if isinstance(value, np.ndarray) else value
                for name, value in request.items()
            }
            return dict(request)

        host.seen = {}
        with host.start(model):
            yield host


@pytest.fixture(scope="module")
def runner(host, scripted_runner):
    runner = ScriptedRunner(scripted_runner)
    assert runner.do("open", host.url).startswith("0")
    yield runner
    runner.kill()
    runner.communicate()


def hexadecimal(data):
    return data.hex() or "-"


@many
@given(st.lists(arrays(plain=True), min_size=1, max_size=4))
def test_tensors_of_c_come_back_as_they_were(host, runner, fields):
    expected = "0"
    for i, array in enumerate(fields):
        code = CODES[array.dtype.name]
        dims = " ".join(map(str, (array.ndim, *array.shape)))
        runner.do("feature", f"f{i}", code, dims, hexadecimal(array.tobytes()))
        expected += f" | f{i} {code} {TENSOR} {dims} {hexadecimal(array.tobytes())}"
    assert runner.do("evaluate", 0) == expected
    for i, array in enumerate(fields):
        seen = host.seen[f"f{i}"]
        assert (seen.dtype, seen.shape, seen.tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        )


@many
@given(texts, st.lists(texts, min_size=1, max_size=5))
def test_texts_of_c_come_back_as_they_were(host, runner, text, several):
    datas = [t.encode() for t in several]
    runner.do("string", "one", hexadecimal(text.encode()))
    runner.do("strings", "several", len(several), *map(hexadecimal, datas))
    answer = runner.do("evaluate", 0)
    offsets = " ".join(str(n) for n in np.cumsum([0, *map(len, datas)]))
    joined = b"".join(datas)
    assert answer == (
        f"0 | one 6 {STRING} 1 {len(text.encode())} {hexadecimal(text.encode())}"
        f" | several 6 {STRINGS} 1 {len(several)} {len(joined)} {offsets} {hexadecimal(joined)}"
    )
    assert host.seen == {"one": text, "several": several}


@many
@given(ragged(plain=True))
def test_rows_of_c_come_back_as_they_were(host, runner, rows):
    values, code, lengths = rows.values, CODES[rows.values.dtype.name], [len(row) for row in rows]
    dims = " ".join(map(str, values.shape))
    data = hexadecimal(values.tobytes())
    runner.do("ragged", "rows", code, len(lengths), *lengths, values.ndim, dims, data)
    offsets = " ".join(str(n) for n in np.cumsum([0, *lengths]))
    assert (
        runner.do("evaluate", 0)
        == f"0 | rows {code} {RAGGED} {values.ndim} {len(lengths)} {dims} {offsets} {data}"
    )
    assert [len(row) for row in host.seen["rows"]] == lengths


def test_a_string_that_is_no_utf8_goes_back_as_it_came(host, runner):
    runner.do("string", "x", "41ff80")
    assert runner.do("evaluate", 0) == f"0 | x 6 {STRING} 1 3 41ff80"
    assert host.seen == {"x": "A\udcff\udc80"}


# ---- Wishes ----


@pytest.fixture
def ask(serve, c_runner):
    """ask(advice, dtype): what a C runner gets when it wants advice as dtype, and what the model's
    reply came to."""
    answers, outcomes = [], []

    def model(request):
        try:
            outcomes.append("sent" if request.reply(answers[-1]) else "refused")
        except shmbridge.ShmbridgeError as error:
            outcomes.append(type(error).__name__)

    with serve(lambda request: model(request)) as host:
        runner = c_runner(host.url)

        def asking(advice, how):
            answers.append(advice)
            runner.do("feature", "x", 5, 0, bytes(8).hex())
            answer = runner.do(*(("evaluate", CODES[how]) if how in CODES else (how,)))
            while len(outcomes) < len(answers):
                pass
            return answer, outcomes[-1]

        yield asking


def test_advice_is_converted_where_that_is_exact(ask):
    assert ask(3, "f64") == ("0 3", "sent")
    assert ask(2.0, "i64") == ("0 2", "sent")
    assert ask(0.5, "f32") == ("0 0.5", "sent")
    assert ask(np.float16(4), "i32") == ("0 4", "sent")
    assert ask(True, "i64") == ("0 1", "sent")
    assert ask(np.array([[1.0]]), "i32") == ("0 1", "sent")
    assert ask(np.array([1, 2], "i8"), "float32") == (
        "0 | advice 11 0 1 2 0000803f00000040",
        "sent",
    )
    assert ask([1.0, 0.0], "bool") == ("0 | advice 1 0 1 2 0100", "sent")
    assert ask(1.5, "bfloat16") == ("0 | advice 13 0 0 c03f", "sent")
    assert ask(np.array([1.5]), "bfloat16") == ("0 | advice 13 0 1 1 c03f", "sent")
    assert ask(float("nan"), "float16")[0].startswith("0 | advice 10")


@pytest.mark.parametrize(
    ("advice", "how"),
    [
        (2.5, "i64"),
        (2**40, "i32"),
        (2**53 + 1, "f64"),
        (2**63 - 1, "f64"),
        (0.1, "f32"),
        (-1, "uint8"),
        (2, "bool"),
        (float("nan"), "i64"),
        (float("inf"), "i32"),
        (np.array([1.0, 2.5]), "int8"),
        (np.array([300]), "uint8"),
        (np.array([2**64 - 1], np.uint64), "float64"),
        (np.array([2**63 - 1]), "float64"),
        (np.array([2.0**63]), "int64"),
        (np.array([2.0**64]), "uint64"),
        (np.array([2**64 - 1], np.uint64), "int64"),
        (np.array([-1]), "uint64"),
        (np.array([1e300]), "float32"),
        (np.array([np.nan]), "int32"),
    ],
    ids=repr,
)
def test_advice_that_is_not_exactly_the_wanted_is_an_error_of_the_runner(ask, advice, how):
    answer, outcome = ask(advice, how)
    assert answer.startswith("16 ") and "not exactly" in answer and outcome == "refused"
    assert ask(7, "i64") == ("0 7", "sent")


def test_text_is_not_converted(ask):
    for advice in ("text", ["a", "b"]):
        answer, outcome = ask(advice, "float32")
        assert answer.startswith(("15 ", "16 ")) and outcome == "refused"
    assert ask("text", "uint8") == ("0 | advice 6 1 1 4 74657874", "sent")


def test_advice_of_several_elements_is_no_scalar(ask):
    answer, outcome = ask([1, 2], "i64")
    assert answer.startswith("15 ") and "one element" in answer and outcome == "sent"


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -65520, 65520])
def test_an_integer_that_overflows_a_float_is_not_exact(value):
    field = tensor.Field("x", lib.SHMB_INT64, lib.SHMB_TENSOR, np.array([1, value], np.int64))
    assert tensor.exactly(field, lib.SHMB_FLOAT16) is None


@many
@given(st.data())
def test_the_host_says_exact_when_and_only_when_both_ways_give_the_same(data):
    """`exactly` of whole arrays against the C code for single numbers."""
    from shmbridge._native import ffi

    code = data.draw(st.sampled_from([lib.SHMB_INT64, lib.SHMB_FLOAT64]))
    edges = [
        s * (2**p + d)
        for p in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 62, 63)
        for d in (-1, 0, 1)
        for s in (1, -1)
    ]
    if code == lib.SHMB_INT64:
        value = data.draw(
            st.integers(-(2**63), 2**63 - 1)
            | st.sampled_from([e for e in edges if -(2**63) <= e < 2**63])
        )
        convert, dtype = lib.shmb_convert_i64, np.int64
    else:
        value = data.draw(
            st.floats()
            | st.sampled_from(edges).map(float)
            | st.floats(width=16)
            | st.floats(width=32)
        )
        convert, dtype = lib.shmb_convert_f64, np.float64
    want = data.draw(st.integers(1, 13))
    out = ffi.new("uint8_t[8]")
    exact = convert(value, want, out)
    field = tensor.exactly(tensor.Field("x", code, lib.SHMB_TENSOR, np.array([value], dtype)), want)
    assert (field is not None) == exact
    if exact and value == value:
        assert field.values.tobytes() == bytes(out)[: field.values.nbytes]

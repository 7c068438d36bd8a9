"""What is sent is what arrives: every dtype, rank and kind; what no tensor can hold is an error,
nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.requests import evaluating
from support.values import arrays, expect_same, many, messages, same

import shmbridge
from shmbridge import InvalidError, Ragged, TensorSpec
from shmbridge._native import ffi, lib
from shmbridge._values import tensor


@pytest.fixture(scope="module")
def runner(new_name, echo):
    """Connected to a host that echoes."""
    with shmbridge.Host(new_name()) as host, host.start(echo), shmbridge.connect(host.url) as made:
        yield made


@many
@given(messages(min_size=1))
def test_a_message_comes_back_as_it_was(runner, message):
    runner.evaluate(message)
    expect_same(runner.advice, message)


@many
@given(arrays())
def test_an_array_alone_comes_back_as_it_was(runner, array):
    with np.errstate(invalid="ignore"):
        found = runner.evaluate({"x": array})
        assert same(found, array) and isinstance(found, np.ndarray) == bool(array.ndim)
    assert not array.ndim or found.flags.writeable


@pytest.mark.parametrize(
    "value",
    [True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 0.0, -2.5, float("inf"), 1e300],
)
def test_a_python_number_comes_back_equal_and_of_the_same_type(runner, value):
    found = runner.evaluate({"x": value})
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        ([1, 2, 3], "i8", (3,)),
        ([[1.0, 2.0], [3.0, 4.0]], "f8", (2, 2)),
        ([True, False], "?", (2,)),
        ([], "f8", (0,)),
        ([0, 2**63], "u8", (2,)),
        ([[], []], "f8", (2, 0)),
        ((1, 2), "i8", (2,)),
        ([np.float32(1), np.float32(2)], "f4", (2,)),
        ([np.array([1, 2], "i2"), np.array([3, 4], "i2")], "i2", (2, 2)),
        (np.float16(3), "f2", ()),
    ],
)
def test_a_sequence_is_the_tensor_that_numpy_makes_of_it(runner, value, dtype, shape):
    found = np.asarray(runner.evaluate({"x": value}))
    assert found.shape == shape and (found.dtype == dtype or not shape)
    assert found.tolist() == np.asarray(value).tolist()


def test_lists_of_unequal_length_are_ragged(runner):
    found = runner.evaluate({"x": [[1, 2], [], [3]]})
    assert isinstance(found, Ragged) and found.values.dtype == np.int64
    assert [row.tolist() for row in found] == [[1, 2], [], [3]]
    assert [row.tolist() for row in found[1:]] == [[], [3]] and found[-1].tolist() == [3]
    found = runner.evaluate({"x": [[[1, 0]], [], [[2**64 - 1, 3], [4, 5]]]})
    assert [row.tolist() for row in found] == [
        [[1, 0]],
        [],
        [[2**64 - 1, 3], [4, 5]],
    ] and found.values.dtype == np.uint64
    found = runner.evaluate({"x": [np.ones((2, 3), "f4"), np.zeros((0, 3), "f4")]})
    assert [row.shape for row in found] == [(2, 3), (0, 3)] and found.values.dtype == np.float32


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_anything_with_dlpack_is_a_tensor(runner):
    assert runner.evaluate({"x": OnlyDlpack(np.arange(3))}).tolist() == [0, 1, 2]


ONES = np.ones(3)
NO_TENSORS = {
    "one type, found float and int": [[1, 2.5]],
    "one type, found bool and int": [[True, 1]],
    "one type, found int and text": [["a", 1]],
    "one type": [[[1], ["a"]]],
    "object": [[None], np.array([None])],
    "found NoneType": [None],
    "found bytes": [b"bytes"],
    "found dict": [{"a": 1}],
    "found set": [{1, 2}],
    "found object": [object()],
    "complex": [1j],
    "64 bits": [2**64, -(2**63) - 1],
    "one integer dtype": [[2**64], [2**63, -1], [np.int64(-1), np.uint64(2**63)]],
    "neither": [[[1, 2], 3], [[[]], []], [np.ones((1, 2)), np.ones((2, 3))]],
    "complex128": [np.array([1 + 2j])],
    "<U1": [np.array(["a"]), [["a"], ["b"]]],
    "datetime64": [np.array(["2020-01-01"], "datetime64[D]")],
    "'a'": [np.zeros(2, [("a", "i4")])],
    "masked": [np.ma.masked_array([1, 2], [True, False])],
    "0 to 8, found 9": [np.ones((1,) * 9)],
    "surrogate": ["\ud800", ["a", "\ud800"]],
    "never decrease": [Ragged(ONES, np.array([0, 2, 1, 3]))],
    "3": [Ragged(ONES, np.array([0, 2]))],
    "begin with 0": [Ragged(ONES, np.array([1, 3]))],
    "float64": [Ragged(ONES, np.array([0.0, 3.0]))],
    "offsets": [Ragged(ONES, np.array([[0, 3]])), Ragged(ONES, np.array([], int))],
}


@pytest.mark.parametrize(
    ("value", "says"), [(each, says) for says, values in NO_TENSORS.items() for each in values]
)
def test_what_is_no_tensor_is_an_error_that_names_it_and_leaves_the_runner_good(
    runner, value, says
):
    with pytest.raises(InvalidError) as caught:
        runner.evaluate({"first": 1, "the culprit": value})
    assert says in str(caught.value) and "the culprit" in str(caught.value)
    assert runner.advice == {}
    assert runner.evaluate({"first": 1}) == 1  # nothing stuck from the failed one


@pytest.mark.parametrize("change", [dict.clear, lambda features: features.pop("x")])
def test_a_value_that_changes_the_features_while_they_are_read_is_an_error(runner, change):
    class Changing:
        __dlpack__ = None

        def numpy(self):
            change(features)
            return np.zeros(3)

    features = {"x": Changing(), "y": 1.0}
    with pytest.raises(RuntimeError, match="changed size"):
        runner.evaluate(features)
    assert runner.evaluate({"x": 1}) == 1


@pytest.mark.parametrize("called", ["", "a\0b", "\ud800", "\udcff", 3, None])
def test_a_name_that_is_none_is_an_error_and_leaves_the_runner_good(runner, called):
    with pytest.raises(InvalidError, match="name|UTF-8"):
        runner.evaluate({"first": 1, called: 2})
    assert runner.evaluate({"first": 1}) == 1


@pytest.mark.parametrize("called", ["a\0b", ""])
def test_advice_with_a_name_that_is_none_is_an_error_and_the_request_stays_open(called, serve):
    def model(request):
        with pytest.raises(InvalidError):
            request.reply(**{called: 1})
        return 5

    with serve(model) as host, shmbridge.connect(host.url) as runner:
        assert runner.evaluate({"x": 1}) == 5


def test_advice_is_a_copy_of_the_runners_own(runner):
    first = runner.evaluate({"x": np.arange(100)})
    second = runner.evaluate({"x": np.arange(100, 200)})
    assert first[0] == 0 and second[0] == 100
    first[:] = -1
    assert second[0] == 100


def test_a_single_field_is_the_value_and_several_are_a_dict(serve):
    def model(request):
        return {"a": 1, "b": 2.5} if request["two"] else {"only": 3}

    with serve(model) as host, shmbridge.connect(host.url) as runner:
        assert runner.evaluate({"two": True}) == {"a": 1, "b": 2.5} == runner.advice
        assert runner.evaluate({"two": False}) == 3 and runner.advice == {"only": 3}


def test_specs_say_what_they_mean():
    spec = TensorSpec("x", "float32", (None, 3))
    assert str(spec) == "x: float32[?, 3]" and str(TensorSpec("y", int, None)) == "y: int64[...]"
    assert spec.matches(np.dtype("f4"), (7, 3)) and not spec.matches(np.dtype("f4"), (7, 4))
    assert not spec.matches(np.dtype("f8"), (7, 3)) and not spec.matches(np.dtype("f4"), (3,))


@pytest.mark.parametrize("slots", [2, 16])
def test_requests_that_differ_in_a_texts_length_alone_have_one_layout(serve, slots):
    """What follows the text lies elsewhere each time; what was kept stays as it was."""
    kept, seen = [], set()

    def model(request):
        n = len(request["s"])
        seen.add(id(request._layout))
        assert (request["s"], request.signature) == ("x" * n, "a: int64[3], s: str, b: int64[5]")
        if slots == 2 or n in (3, 2000):
            kept.append((n, request["a"], request["b"]))
        return n

    with serve(model, slots=slots) as host, shmbridge.connect(host.url) as runner:
        for n in [0, 3, 70, 70, 5, 2000, 1, 300]:
            assert runner.evaluate({"a": np.full(3, n), "s": "x" * n, "b": np.full(5, -n)}) == n
    assert all(a.tolist() == [n] * 3 and b.tolist() == [-n] * 5 for n, a, b in kept)
    assert slots == 2 or len(seen) <= 3  # for each slot that was used


@pytest.mark.parametrize(
    "value",
    [np.timedelta64(1, "s"), np.bytes_(b"ab"), b"ab", memoryview(b"ab"), np.complex64(1)],
    ids=lambda value: type(value).__name__,
)
def test_what_only_exports_bytes_is_no_advice(name, in_thread, value):
    with shmbridge.Host(name) as host:
        asking = evaluating(in_thread, host, {"x": 1})
        request = host.receive(timeout=30)
        for give in (request.reply, lambda v: request.reply(y=1, z=v)):
            with pytest.raises(InvalidError):
                give(value)
        request.reply(5)
        assert asking.result() == 5


# ---- What is exact ----


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -65520, 65520])
def test_an_integer_that_overflows_a_float_is_not_exact(value):
    field = tensor.Field("x", lib.SHMB_INT64, lib.SHMB_TENSOR, np.array([1, value], np.int64))
    assert tensor.exactly(field, lib.SHMB_FLOAT16) is None


@many
@given(st.data())
def test_the_host_says_exact_when_and_only_when_both_ways_give_the_same(data):
    """`exactly` of whole arrays against the C code for single numbers."""
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

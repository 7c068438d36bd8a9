"""What every combination must do: each case is a function of a Stage, by name."""

import contextlib
import functools
import itertools

import numpy as np
import wire
from stage import ROOM

from shmbridge import Ragged, TensorSpec
from shmbridge._values.tensor import StringList

CASES = {}
DTYPES = {dtype.name: dtype for dtype in wire.DTYPES.values()}
FLOATS = [DTYPES[name] for name in ("float16", "bfloat16", "float32", "float64")]
MEGABYTE = 1 << 20


def case(name, *args):
    """Names a case; with args, the function's."""

    def register(function):
        assert name not in CASES, name
        CASES[name] = (lambda w: function(w, *args)) if args else function
        return function

    return register


def family(name, several):
    """One case for each of several, by name: a dict of arguments."""
    return lambda function: (
        [case(f"{name}-{each}", value)(function) for each, value in several.items()] and function
    )


def echoes(w, value):
    """A tensor there, and the same back, wanted as what it is."""
    w.model = lambda request: value
    found = w.ask({"x": value}, value.dtype)
    w.saw({"x": value})
    w.gave(found, value)


def sends(w, features):
    """Features that the model gets, and answers with a number."""
    w.model = lambda request: np.array([8], np.int64)
    w.ask(features, np.int64)
    w.saw(features)


def gets(w, advice, want=None):
    """Advice that the runner gets for a plain question."""
    w.model = lambda request: advice
    w.gave(w.ask({"x": np.array([7], np.int64)}, want), advice)


# ---- Dtypes and shapes ----


def typical(dtype):
    """A vector with what is special about a dtype."""
    if dtype.kind == "b":
        return np.array([True, False, True])
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return np.array([ends.min, ends.max, 0, 1, ends.max // 3, ends.min // 2], dtype)
    return np.array([0, 1, -2, 0.5, 0.1, -0.3, 1e-3, 1e4], np.float64).astype(dtype)


@family("dtype", DTYPES)
def dtype(w, dtype):
    echoes(w, typical(dtype))


SCALARS = ("bool", "int16", "uint64", "float16", "float64")


@family("scalar", {name: DTYPES[name] for name in SCALARS})
def scalar(w, dtype):
    for value in typical(dtype)[:4]:
        echoes(w, np.array(value, dtype))


@family("rank", {rank: rank for rank in (0, 1, 2, 5, 8)})
def rank(w, rank):
    shape = (2, 3, 1, 2, 2, 1, 3, 2)[:rank]
    echoes(w, np.asarray(np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) / 4))


@family("empty", {"0": (0,), "0x3": (0, 3), "2x0": (2, 0)})
def empty(w, shape):
    echoes(w, np.zeros(shape, np.int32))


@family("size", {"64KB": 1 << 16, "1MB": MEGABYTE})
def size(w, size):
    echoes(w, (np.arange(size, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8))


@contextlib.contextmanager
def patience(w):
    """Megabytes as JSON may take a busy machine longer than the default deadline."""
    w.deadline(60)
    yield
    w.deadline(0)


@functools.cache
def large():
    return np.arange(2 * MEGABYTE, dtype=np.int64) % 10


@case("size-16MB-request")
def large_request(w):
    with w.elsewhere(w.new_url(), request_bytes=16 * MEGABYTE), patience(w):
        sends(w, {"x": large()})


@case("size-16MB-advice")
def large_advice(w):
    with w.elsewhere(w.new_url(), advice_bytes=16 * MEGABYTE), patience(w):
        gets(w, large(), np.int64)


@case("too-large")
def too_large(w):
    with patience(w), w.fails("TOO_LARGE"):
        w.ask({"x": np.zeros(2 * ROOM, np.uint8)}, np.uint8)
    w.works()


@case("advice-too-large")
def advice_too_large(w):
    w.model = lambda request: np.zeros(2 * ROOM, np.uint8)
    with w.fails("TOO_LARGE"):
        w.ask({"x": np.zeros(1, np.uint8)}, np.uint8)
    w.works()


@case("echo")
def echo(w):
    """What comes back is what the model has in its hands, perhaps still in shared memory."""
    for n in (1, 10, 1000):
        value = np.arange(n, dtype=np.float64)
        w.model = lambda request: request["x"]
        w.gave(w.ask({"x": value}, np.float64), value)


@case("echo-of-all")
def echo_of_all(w):
    w.model = dict
    w.gave(w.ask(EVERY_KIND), EVERY_KIND)


@case("changing-shapes")
def changing_shapes(w):
    for n, dtype in itertools.product((1, 7, 3, 1000, 2), (np.int64, np.float32, np.uint8)):
        echoes(w, np.arange(n).astype(dtype))
        echoes(w, (np.arange(2 * n) % 100).astype(dtype).reshape(2, n))


# ---- Values ----


@case("integers-extreme")
def integers_extreme(w):
    echoes(w, np.array([2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 0], np.int64))
    echoes(w, np.array([2**64 - 1, 2**63, 2**53 + 1, 0], np.uint64))


@family("floats-special", {dtype.name: dtype for dtype in FLOATS})
def floats_special(w, dtype):
    echoes(w, np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0], np.float64).astype(dtype))


@family("floats-tiny", {"float32": np.float32, "float64": np.float64})
def floats_tiny(w, dtype):
    ends = np.finfo(dtype)
    tiny = [ends.smallest_subnormal, ends.tiny, ends.eps]
    echoes(w, np.array([*tiny, ends.max, ends.min, 1 + ends.eps], dtype))


TEXTS = {
    "empty": "",
    "utf8": 'größe → 大きさ 🦊 "\\\n',
    "zero": "a\0b",
    "bytes": "lib\udcff\udc80.so",
    "long": "shmbridge " * 10_000,
}


@family("string-request", TEXTS)
def string_request(w, text):
    sends(w, {"x": text})


@family("string-advice", TEXTS)
def string_advice(w, text):
    gets(w, text)


LISTS = {
    "several": ["a", "", "größe → 大きさ", "d" * 1000],
    "one": ["a"],
    "none": StringList(),
    "bytes": ["\udcff", "b"],
}


@family("strings-request", LISTS)
def strings_request(w, texts):
    sends(w, {"x": texts})


@family("strings-advice", LISTS)
def strings_advice(w, texts):
    gets(w, texts)


def ragged(dtype, lengths, *width):
    values = np.arange(sum(lengths) * int(np.prod(width, dtype=int)), dtype=dtype)
    return Ragged(values.reshape(-1, *width), np.cumsum([0, *lengths]))


EVERY_KIND = {
    "vector": np.array([1.5, -2.5]),
    "name": "main",
    "names": ["a", "b"],
    "rows": ragged(np.int64, [1, 2]),
}
RAGGED = {
    "integers": ragged(np.int64, [2, 0, 3, 1]),
    "float32": ragged(np.float32, [0, 2]),
    "vectors": ragged(np.float32, [2, 1, 3], 3),
    "even-rows": ragged(np.int64, [2, 2, 2]),
    "empty-rows": ragged(np.int64, [0, 0]),
    "no-rows": ragged(np.int64, []),
}


@family("ragged-request", RAGGED)
def ragged_request(w, rows):
    sends(w, {"x": rows})


@family("ragged-advice", RAGGED)
def ragged_advice(w, rows):
    gets(w, rows)


# ---- Messages ----


def many(least):
    dtypes = np.int64, np.float64
    return {f"field_{i}": np.arange(i % 9 + least, dtype=dtypes[i % 2]) for i in range(200)}


@case("many-tensors")
def many_tensors(w):
    sends(w, many(1))


@case("many-tensors-advice")
def many_tensors_advice(w):
    gets(w, many(2))


@case("order-of-features")
def order_of_features(w):
    names = ["zebra", "alpha", "Mid", "z", "a1", "größe"]
    sends(w, {name: np.array([i], np.int64) for i, name in enumerate(names)})


@case("order-of-advice")
def order_of_advice(w):
    gets(w, {name: np.array([i], np.int64) for i, name in enumerate(["zebra", "alpha", "mid"])})


@case("every-kind-request")
def every_kind_request(w):
    sends(w, EVERY_KIND | {"n": np.array([3], np.int64)})


@case("every-kind-advice")
def every_kind_advice(w):
    gets(w, EVERY_KIND | {"n": np.array([3, 4], np.int64)})


@case("name-twice")
def name_twice(w):
    x = np.array([1], np.int64)
    w.ready()
    if w.combination.language not in ("python", "pure"):  # where features are a mapping
        w.runner.do(wire.filled("x", x, w.spill))
        with w.fails("INVALID", "x"):
            w.ask({"x": x}, np.int64)
    w.works()


@case("no-features")
def no_features(w):
    sends(w, {})


@case("replies-longer-and-shorter")
def replies_longer_and_shorter(w):
    for asked, answered in ((1, 5000), (5000, 1), (3, 4), (4, 3), (1, 0), (100, 100)):
        features, advice = {"x": np.arange(asked, dtype=float)}, np.arange(answered, dtype=float)
        w.model = lambda request, advice=advice: advice
        found = w.ask(features, np.float64)
        w.saw(features)
        w.gave(found, advice)


@case("untyped-advice")
def untyped_advice(w):
    """The runner wants no dtype: it gets the model's."""
    gets(w, np.array([1.5, 2.5]))
    gets(w, np.array([1, 2, 3], np.int64))


# ---- Wanted dtypes ----

EXACT = {
    "float-as-int": (np.array([2.0, -3.0]), np.int64),
    "int64-as-uint8": (np.array([0, 255], np.int64), np.uint8),
    "float64-as-float32": (np.array([0.5, np.nan, -0.0, np.inf]), np.float32),
    "float32-as-float64": (np.array([0.1, 1e30], np.float32), np.float64),
    "float64-as-bfloat16": (np.array([1.5, 2.0**100]), DTYPES["bfloat16"]),
    "bool-as-int64": (np.array([True, False]), np.int64),
}


@family("wanted-exact", EXACT)
def wanted_exact(w, pair):
    advice, want = pair
    w.model = lambda request: advice
    w.gave(w.ask({"x": np.array([1], np.int64)}, want), advice.astype(want))


INEXACT = {
    "half-as-int": (np.array([2.5]), np.int64),
    "2^53+1-as-float64": (np.array([2**53 + 1], np.int64), np.float64),
    "negative-as-uint64": (np.array([-1], np.int64), np.uint64),
    "nan-as-int64": (np.array([np.nan]), np.int64),
    "tenth-as-float32": (np.array([0.1]), np.float32),
}


@family("wanted-inexact", INEXACT)
def wanted_inexact(w, pair):
    advice, want = pair
    w.model = lambda request: advice
    w.refuses({"x": np.array([1], np.int64)}, want)
    w.works()


@family("wanted-number-is", {"string": "text", "list": ["a", "b"]})
def wanted_number_is_text(w, text):
    w.model = lambda request: text
    w.refuses({"x": np.array([1], np.int64)}, np.float32)
    w.works()


@case("host-knows-the-advice")
def host_knows_the_advice(w):
    """A host that is told the dtype converts to it, also for runners that cannot say what they
    want."""
    with w.elsewhere(w.new_url(), advice=[TensorSpec("advice", np.int32, (None,))]):
        w.model = lambda request: np.array([3.0, -4.0])
        w.gave(w.ask({"x": np.array([1], np.int64)}, np.int32), np.array([3, -4], np.int32))
        w.model = lambda request: np.array([2.5])
        w.refuses({"x": np.array([1], np.int64)}, np.int32)


@case("host-knows-the-features")
def host_knows_the_features(w):
    with w.elsewhere(w.new_url(), features=[TensorSpec("x", np.float64, (2,))]):
        echoes(w, np.array([1.5, 2.5]))
        with w.fails("MISMATCH", "x: float64"):
            w.ask({"x": np.array([1.5, 2.5, 3.5])}, np.float64)
        with w.fails("MISMATCH", "x: float64"):
            w.ask({"y": np.array([1.5, 2.5])}, np.float64)
        echoes(w, np.array([3.5, 4.5]))


@case("wanted-one-of-several-fields")
def wanted_one_of_several_fields(w):
    w.model = lambda request: {"a": 1, "b": 2}
    with w.fails("MISMATCH"):
        w.ask({"x": np.array([1], np.int64)}, np.int64)
    w.works()


NUMBERS = {"i64": (np.int64, -(2**63)), "i32": (np.int32, -7)}
NUMBERS |= {"f32": (np.float32, 0.25), "f64": (np.float64, 0.1)}


@family("evaluate", {how: (how, *rest) for how, rest in NUMBERS.items()})
def evaluate_scalar(w, of):
    how, dtype, value = of
    w.model = lambda request: request["x"]
    assert w.ask_scalar(how, {"x": np.array([value], dtype)}) == value


@case("evaluate-scalar-of-two")
def evaluate_scalar_of_two(w):
    w.model = lambda request: np.array([1, 2], np.int64)
    with w.fails("MISMATCH"):
        w.ask_scalar("i64", {"x": np.array([1], np.int64)})
    w.works()


# ---- Several questions in flight: more than there are slots ----


@case("in-flight")
def in_flight(w):
    w.model = lambda request: request["x"]
    values = [np.array([i, -i], np.float32) for i in range(20)]
    posted = [w.post({"x": value}, np.float32) for value in values]
    for i in [*range(0, 20, 2), *range(19, 0, -2)]:
        w.sent = values[i]
        w.gave(w.receive(posted[i]), values[i])
    w.works()


@case("in-flight-failure")
def in_flight_failure(w):
    def model(request):
        if request["x"][0] % 3 == 1:
            raise ValueError("no advice for that")
        return request["x"]

    w.model = model
    values = [np.array([i, -i], np.float32) for i in range(10)]
    posted = [w.post({"x": value}, np.float32) for value in values]
    for i in reversed(range(10)):
        if i % 3 == 1:
            with w.fails("MODEL", "no advice for that"):
                w.receive(posted[i])
        else:
            w.sent = values[i]
            w.gave(w.receive(posted[i]), values[i])
    w.works()

"""Any values, and whether they are the same."""

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from shmbridge import Ragged
from shmbridge._values import dtypes

NAMED_DTYPES = [name for name in dtypes.DTYPES.values() if name != "bfloat16"]
DTYPES = [*map(np.dtype, NAMED_DTYPES), np.dtype(ml_dtypes.bfloat16)]
HOW = ["plain", "big-endian", "reversed", "transposed", "every second", "read-only"]

many = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@st.composite
def arrays(draw, dtypes=DTYPES, min_rank=0, max_rank=8, plain=False):
    """Any bytes as any dtype and shape; unless plain, sometimes big-endian, reversed, transposed,
    or every second element."""
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=min_rank, max_size=max_rank)))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = np.frombuffer(
        draw(st.binary(min_size=min(size, 64), max_size=64)) * (size // 8 + 1), np.uint8
    )[:size]
    array = (data & 1 if dtype.kind == "b" else data).view(dtype).reshape(shape)
    how = draw(st.sampled_from(HOW[:1] if plain else HOW))
    if how == "big-endian" and dtype.name != "bfloat16":
        array = array.astype(dtype.newbyteorder(">"))
    elif how == "reversed":
        array = np.ascontiguousarray(array)[tuple(slice(None, None, -1) for _ in array.shape)]
    elif how == "transposed":
        array = array.T
    elif how == "every second" and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    elif how == "read-only":
        array.setflags(write=False)
    return array


@st.composite
def ragged(draw, **options):
    rows = draw(st.lists(st.integers(0, 4), max_size=5))
    like = draw(arrays(min_rank=1, max_rank=3, **options))
    values = np.resize(np.ascontiguousarray(like), (sum(rows), *like.shape[1:])).astype(like.dtype)
    return Ragged(values, np.cumsum([0, *rows]))


def same(found, sent):
    """The same kind, dtype (in the machine's byte order), shape and bytes; a Python number for
    rank 0."""
    if isinstance(sent, Ragged):
        return same(found.values, sent.values) and list(found.offsets) == list(sent.offsets)
    if isinstance(sent, (str, list)):
        return found == sent
    dtype = sent.dtype.newbyteorder("=") if sent.dtype.name != "bfloat16" else sent.dtype
    native = np.ascontiguousarray(sent.astype(dtype)).reshape(sent.shape)
    if not sent.ndim:
        found = np.array(found, dtype)
        return np.array_equal(found.astype(float), native.astype(float), equal_nan=True)
    assert isinstance(found, np.ndarray) and found.flags.c_contiguous
    return (found.dtype, found.shape, found.tobytes()) == (dtype, sent.shape, native.tobytes())


def expect_same(found, sent):
    """The same fields, in the same order."""
    assert list(found) == list(sent)
    with np.errstate(invalid="ignore"):
        for name, value in sent.items():
            assert same(found[name], value), (name, found[name], value)


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def messages(min_size=0, **options):
    """Features or advice of every kind, for `expect_same`."""
    lists = st.lists(texts, min_size=1, max_size=5)
    values = st.one_of(arrays(max_rank=4, **options), texts, lists, ragged(**options))
    return st.dictionaries(names, values, min_size=min_size, max_size=5)

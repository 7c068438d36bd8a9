"""Any values, and whether they are the same."""

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

NAMED_DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
DTYPES = [*map(np.dtype, NAMED_DTYPES), np.dtype(ml_dtypes.bfloat16)]

many = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@st.composite
def arrays(draw, dtypes=DTYPES, min_rank=0, max_rank=8):
    """Any bytes as any dtype and shape; sometimes big-endian, reversed, transposed, or every second
    element."""
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=min_rank, max_size=max_rank)))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = np.frombuffer(
        draw(st.binary(min_size=min(size, 64), max_size=64)) * (size // 8 + 1), np.uint8
    )[:size]
    array = (data & 1 if dtype.kind == "b" else data).view(dtype).reshape(shape)
    how = draw(
        st.sampled_from(
            ["plain", "big-endian", "reversed", "transposed", "every second", "read-only"]
        )
    )
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


def same(found, sent):
    """The same dtype (in the machine's byte order), shape and bytes; a Python number for rank 0."""
    dtype = sent.dtype.newbyteorder("=") if sent.dtype.name != "bfloat16" else sent.dtype
    native = np.ascontiguousarray(sent.astype(dtype)).reshape(sent.shape)
    if not sent.ndim:
        assert not isinstance(found, np.ndarray)
        found = np.array(found, dtype)
        assert np.array_equal(
            found.astype(float),
            native.astype(float),
            equal_nan=dtype.kind == "f" or dtype.name == "bfloat16",
        )
        return True
    assert isinstance(found, np.ndarray) and found.flags.c_contiguous and found.flags.writeable
    assert (found.dtype, found.shape) == (dtype, sent.shape)
    assert found.tobytes() == native.tobytes()
    return True


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

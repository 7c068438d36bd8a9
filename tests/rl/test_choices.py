"""What an action is, of scores: argmax and samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environments import MASK

from shmbridge import InvalidError, MismatchError, ModelError
from shmbridge.rl import Random, choose

finite = st.floats(-50, 50)

vectors = st.lists(finite, min_size=1, max_size=40)


class Reference:
    """SplitMix64 as its paper has it."""

    def __init__(self, seed):
        self.state = seed & MASK

    def __call__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def test_the_generator_is_splitmix64():
    random = Random(1234567)  # figures of the reference implementation, shifted
    assert [int(random() * 2**53) for _ in range(3)] == [
        n >> 11 for n in (6457827717110365317, 3203168211198807973, 9817491932198370423)
    ]
    for seed in (0, -1, 2**64 - 1, 2**70 + 3):
        random, reference = Random(seed), Reference(seed)
        assert [random() for _ in range(50)] == [reference() for _ in range(50)]


@given(vectors, st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64"]))
def test_argmax_is_numpys(values, dtype):
    array = np.array([*values, 1.0]).astype(dtype)
    assert choose(array) == int(np.argmax(array))
    assert choose(array.reshape(1, -1)) == int(np.argmax(array))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_argmax_tells_neighbours_apart_that_no_double_does(dtype):
    assert choose(np.array([2**62, 2**62 + 1, 2**62], dtype)) == 1


def test_argmax_of_every_dtype():
    import ml_dtypes

    dtypes = ["bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))]
    dtypes += [f"float{n}" for n in (16, 32, 64)]
    for dtype in [*dtypes, ml_dtypes.bfloat16]:
        assert choose(np.array([0, 1, 0, 1]).astype(dtype)) == 1
        assert choose(np.array([0, 1, 0]).astype(dtype), "probabilities", Random(5)) == 1


@given(vectors, st.integers(0, MASK))
def test_sampling_logits_is_the_inverse_of_their_softmax(values, seed):
    array = np.array([*values, 0.0])
    weights = np.exp(array - array.max())
    ends, at = np.cumsum(weights) / weights.sum(), Reference(seed)()
    expected = int(np.searchsorted(ends, at, side="right"))
    found = choose(array, "logits", Random(seed))
    assert found == expected or abs(ends[min(found, expected)] - at) < 1e-12


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=40), st.integers(0, MASK))
def test_sampling_probabilities_takes_each_by_its_share(values, seed):
    array = np.array([*values, 1.0], np.float32)
    ends, at = np.cumsum(array, dtype=float) / array.sum(dtype=float), Reference(seed)()
    expected = int(np.searchsorted(ends, at, side="right"))
    found = choose(array, "probabilities", Random(seed))
    assert array[found] > 0 and (found == expected or abs(ends[min(found, expected)] - at) < 1e-9)


def test_masked_logits_are_never_chosen():
    masked = np.array([-math.inf, 3, -math.inf, 1000, -math.inf])
    assert {choose(masked, "logits", Random(seed)) for seed in range(50)} == {3}
    assert {
        choose(np.array([math.inf, 0, math.inf]), "logits", Random(seed)) for seed in range(50)
    } == {0, 2}
    assert choose(np.array([-math.inf, -math.inf])) == 0


@pytest.mark.parametrize("how", ["argmax", "logits", "probabilities"])
def test_a_single_integer_is_an_action_already(how):
    for value in (7, np.int32(7), np.array([[7]], np.uint8), -3, np.uint64(2**63 - 1)):
        assert choose(value, how) == int(np.asarray(value).item())
    assert choose(True, how) == 1
    assert choose(np.array([0.25]), how) == 0  # the only one there is


@pytest.mark.parametrize(
    "advice, how, error, says",
    [
        (np.array([]), "argmax", MismatchError, "an empty one"),
        ("text", "argmax", MismatchError, "text or a list"),
        (0.5, "argmax", MismatchError, "a single float"),
        (np.array([1, math.nan]), "argmax", ModelError, "NaN"),
        (np.array([math.nan, 1]), "logits", ModelError, "NaN"),
        (np.array([-math.inf, -math.inf]), "logits", ModelError, "above -infinity"),
        (np.array([-1.0, 2]), "probabilities", ModelError, "are these logits"),
        (np.array([0.0, 0]), "probabilities", ModelError, "zero or infinity"),
        (np.array([math.inf, 0]), "probabilities", ModelError, "zero or infinity"),
        (np.uint64(2**63), "argmax", ModelError, "beyond int64"),
        (np.array([1, 2]), "raw", InvalidError, "argmax"),
        (np.array([1, 2]), "best", InvalidError, "expected one of argmax"),
    ],
)
def test_what_is_no_choice_is_an_error(advice, how, error, says):
    with pytest.raises(error, match=says):
        choose(advice, how)

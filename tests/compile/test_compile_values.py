"""A compiled model takes no address, divisor or shift from a value that onnx:// would reject."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compiling import compile, onnx_models
from support.onnx_models import T, node

import shmbridge
from shmbridge.errors import ModelError

pytestmark = pytest.mark.usefixtures("quick")

F = T.FLOAT
DATA = ("data", F, [4, 3])
UPDATES = ("updates", F, [2, 3])
# Operator: attributes, the other inputs before and after "i", its shape, and where i may lie.
INDEXED = {
    "Gather": ({}, [DATA], [], [2], -4, 3),
    "Gather 1": ({"axis": 1}, [DATA], [], [2], -3, 2),
    "GatherElements": ({"axis": -1}, [DATA], [], [4, 2], -3, 2),
    "GatherND": ({}, [DATA], [], [2, 2], -3, 2),
    "GatherND 1": ({"batch_dims": 1}, [DATA], [], [4, 1], -3, 2),
    "ScatterElements": ({"axis": 0}, [DATA], [UPDATES], [2, 3], -4, 3),
    "ScatterND": ({}, [DATA], [UPDATES], [2, 1], -4, 3),
    "ReverseSequence": ({"time_axis": 0, "batch_axis": 1}, [DATA], [], [3], 1, 4),
    "CumSum": ({}, [DATA], [], [], -2, 1),
    "Div": ({}, [("data", T.INT64, [3])], [], [3], 1, 9),
    "Mod": ({}, [("data", T.INT64, [3])], [], [3], 1, 9),
    "BitShift": ({"direction": "LEFT"}, [("data", T.UINT64, [3])], [], [3], 0, 63),
    "OneHot": ({}, [], [("depth", None, 4), ("values", F, [2])], [3], -99, 99),
    "Trilu": ({}, [DATA], [], [], -99, 99),
}
WIDE = [-(2**63), -(2**32) - 1, 2**32, 2**32 + 1, 2**63 - 1, 0, -1]


@pytest.fixture(scope="module", params=INDEXED)
def indexed(request, tmp_path_factory):
    """An operator: its two runners, its inputs but "i", its shape, dtype and limits."""
    attributes, before, after, shape, low, high = INDEXED[request.param]
    op = request.param.split()[0]
    folder = tmp_path_factory.mktemp("indexed")
    dtype = before[0][1] if op == "BitShift" else T.INT64
    ports = [*before, ("i", dtype, shape), *after]
    constants = {name: np.int64(value) for name, element, value in ports if element is None}
    names = " ".join(port[0] for port in ports)
    model = onnx_models.save(
        folder / "m.onnx",
        [node(op, names, "y", **attributes)],
        [port for port in ports if port[1] is not None],
        [onnx_models.helper.make_empty_tensor_value_info("y")],
        constants,
    )
    compile(model, "-o", folder / "m.so")
    rng = np.random.default_rng(0)
    numpy = onnx_models.helper.tensor_dtype_to_np_dtype
    given = {
        name: np.asarray(rng.normal(size=dims) * 9 + 1, numpy(element))
        for name, element, dims in ports
        if element is not None
    }
    return op, folder, given, shape, numpy(dtype), low, high


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_an_index_outside_fails_as_with_onnx_and_one_inside_gives_the_same(indexed, data):
    op, folder, given, shape, dtype, low, high = indexed
    limits = np.iinfo(dtype)
    inside = st.integers(low, high)
    some = st.one_of(inside, inside, inside, st.integers(low - 2, high + 2), st.sampled_from(WIDE))
    count = int(np.prod(shape, dtype=int))
    values = data.draw(st.lists(some, min_size=count, max_size=count))
    values = np.array([min(max(v, limits.min), limits.max) for v in values], dtype).reshape(shape)
    within = all(low <= int(v) <= high for v in values.flat)
    found = {}
    for scheme, file in ("onnx", "m.onnx"), ("aot", "m.so"):
        with shmbridge.connect(f"{scheme}://{folder}/{file}") as runner:
            try:
                found[scheme] = np.asarray(runner.evaluate({**given, "i": values}))
            except ModelError as error:
                found[scheme] = error
    if within or not isinstance(found["aot"], ModelError):
        np.testing.assert_allclose(found["aot"], found["onnx"], rtol=1e-5)
    else:
        assert op in str(found["aot"]), found
    if isinstance(found["onnx"], ModelError):
        assert isinstance(found["aot"], ModelError), found


X = ("x", F, [4, 3])
SIZES = {
    "Slice": ["from", "to"],
    "Pad": ["pads"],
    "Reshape": ["to"],
    "Expand": ["to"],
    "Tile": ["times"],
    "TopK": ["k"],
    "ReduceSum": ["axes"],
    "Squeeze": ["axes"],
}


@pytest.mark.parametrize("op", SIZES)
def test_a_size_that_depends_on_values_is_refused_and_one_that_does_not_is_compiled(op, tmp_path):
    values = {"from": [1, 0], "to": [4, 3], "pads": [0, 1, 0, 1], "times": [2, 1], "k": [2]}
    values |= {"axes": [1] if op == "ReduceSum" else [0]}
    first = ("x", F, [1, 3]) if op == "Squeeze" else X
    sizes = {name: np.array(values[name]) for name in SIZES[op]}
    nodes = [node(op, " ".join(["x", *sizes]), "y z" if op == "TopK" else "y")]
    outputs = [onnx_models.helper.make_empty_tensor_value_info("y")]
    onnx_models.save(tmp_path / "known.onnx", nodes, [first], outputs, sizes)
    assert "checked: exact" in compile(tmp_path / "known.onnx", "-o", tmp_path / "known.so")
    ports = [first, *((name, T.INT64, list(value.shape)) for name, value in sizes.items())]
    onnx_models.save(tmp_path / "m.onnx", nodes, ports, outputs)
    said = compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=1)
    assert f"{op}: " in said and "depends on the inputs' values" in said and "onnx://" in said


def test_an_index_of_an_open_dimension_needs_its_size(tmp_path):
    model = onnx_models.save(
        tmp_path / "m.onnx",
        [node("Gather", "x i", "y")],
        [("x", F, ["rows", 3]), ("i", T.INT64, ["asked"])],
        [("y", F, ["asked", 3])],
    )
    said = compile(model, "-o", tmp_path / "m.so", "--dim", "asked=2", code=1)
    assert '"rows" is open where indices are used' in said and "--dim" in said
    compile(model, "-o", tmp_path / "m.so", "--dim", "rows=4", "--dim", "asked=2")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        np.testing.assert_array_equal(runner.evaluate({"x": x, "i": np.array([3, -4])}), x[[3, 0]])
        with pytest.raises(ModelError, match="index from -4 to 3, found 4"):
            runner.evaluate({"x": x, "i": np.array([0, 4])})


@pytest.mark.parametrize("sizes", [["n", "k"], ["n", 5]])
def test_open_dimensions_that_may_differ_are_refused(sizes, tmp_path):
    """The generated code would read as many of the second as of the first."""
    ports = [(name, F, [size]) for name, size in zip("xz", sizes, strict=True)]
    output = ("y", F, sizes[:1])
    model = onnx_models.save(tmp_path / "m.onnx", [node("Add", "x z", "y")], ports, [output])
    assert "use onnx://" in compile(model, "-o", tmp_path / "m.so", code=1)
    fixed = [word for name in {*sizes} - {5} for word in ("--dim", f"{name}=5")]
    assert "checked: exact" in compile(model, "-o", tmp_path / "m.so", *fixed)


RANDOM = [node("RandomUniformLike", "x", "y")], [X], [("y", F, [4, 3])]
ALIGNED = (
    [node("RoiAlign", "x r i", "y")],
    [("x", F, [1, 1, 4, 4]), ("r", F, [1, 4]), ("i", T.INT64, [1])],
    [("y", F, [1, 1, 1, 1])],
)
PRIVATE = [node("Gather", "x i", "y", domain="test.ops")], [X, ("i", T.INT64, [])], [("y", F, [3])]
COMMENT = [node("Neg", "x", "*/evil();/*")], [X], [("*/evil();/*", F, [4, 3])]


@pytest.mark.parametrize("model", [RANDOM, ALIGNED, PRIVATE, COMMENT])
def test_an_operator_that_was_not_reviewed_is_refused(model, tmp_path):
    onnx_models.save(tmp_path / "m.onnx", *model)
    assert "use onnx://" in compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=1)

"""shmbridge compile of tree ensembles: written in ONNX's own operators, they give what ONNX Runtime
gives for the ensemble."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compiling import compile, expected, onnx_models, runtime
from support.onnx_models import T, node

import shmbridge
from shmbridge._compile.trees import rewrite

pytestmark = pytest.mark.usefixtures("quick")

FEATURES = 3
# Few, so that inputs and splits are often equal.
NUMBERS = [0.0, -0.0, 1.0, 1.1, -2.5, 3e-45, np.inf, -np.inf]
COMPARISONS = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]


@st.composite
def trees(draw, comparisons):
    """Nodes of up to three trees, as the attributes of a regressor or classifier."""
    nodes = {name: [] for name in ("tree", "node", "feature", "mode", "value", "true", "false")}
    nodes["missing"], leaves = [], []

    def grow(tree, depth):
        number = nodes["tree"].count(tree)
        branch = depth and draw(st.integers(0, 3))
        at = len(nodes["tree"])
        for name, value in (
            ("tree", tree),
            ("node", number),
            ("feature", draw(st.integers(0, FEATURES - 1)) if branch else 0),
            ("mode", f"BRANCH_{draw(st.sampled_from(comparisons))}" if branch else "LEAF"),
            ("value", draw(st.sampled_from(NUMBERS)) if branch else 0.0),
            ("true", 0),
            ("false", 0),
            ("missing", draw(st.integers(0, 1)) if branch else 0),
        ):
            nodes[name].append(value)
        if branch:
            nodes["true"][at], nodes["false"][at] = grow(tree, depth - 1), grow(tree, depth - 1)
        else:
            leaves.append((tree, number))
        return number

    for tree in range(draw(st.integers(1, 3))):
        grow(tree, draw(st.integers(1, 4)))
    attributes = {
        "nodes_treeids": nodes["tree"],
        "nodes_nodeids": nodes["node"],
        "nodes_featureids": nodes["feature"],
        "nodes_modes": nodes["mode"],
        "nodes_values": nodes["value"],
        "nodes_truenodeids": nodes["true"],
        "nodes_falsenodeids": nodes["false"],
    }
    if draw(st.booleans()):
        attributes["nodes_missing_value_tracks_true"] = nodes["missing"]
    return attributes, leaves


def weights(draw, what, leaves, targets, low):
    """A weight of each leaf for each of the targets."""
    every = [(tree, leaf, target) for tree, leaf in leaves for target in targets]
    rows = list(zip(*every, strict=True))
    return {
        f"{what}_treeids": rows[0],
        f"{what}_nodeids": rows[1],
        f"{what}_ids": rows[2],
        f"{what}_weights": draw(
            st.lists(st.floats(low, 1, width=32), min_size=len(every), max_size=len(every))
        ),
    }


def base(draw, count):
    values = st.lists(st.floats(-1, 1, width=32), min_size=count, max_size=count)
    return {"base_values": draw(values)} if draw(st.booleans()) else {}


@st.composite
def regressors(draw):
    attributes, leaves = draw(trees(draw(st.sampled_from([COMPARISONS, ["LEQ"], ["LT"]]))))
    targets = draw(st.integers(1, 3))
    return "TreeEnsembleRegressor", {
        **attributes,
        **weights(draw, "target", leaves, range(targets), -1),
        **base(draw, targets),
        "n_targets": targets,
        "aggregate_function": draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"])),
        "post_transform": draw(st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX"])),
    }


@st.composite
def classifiers(draw):
    attributes, leaves = draw(trees(["LEQ", "LT"]))
    labels = draw(st.lists(st.integers(-9, 9), min_size=2, max_size=4, unique=True))
    two = len(labels) == 2
    low = draw(st.sampled_from([0, -1]))
    return "TreeEnsembleClassifier", {
        **attributes,
        **weights(draw, "class", leaves, [0] if two else range(len(labels)), low),
        **base(draw, 1 if two else len(labels)),
        "classlabels_int64s": labels,
        "post_transform": draw(st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX"])),
    }


def ensemble(kind, attributes, element=T.FLOAT):
    """A model with one node, whose sizes are open, as exporters leave them."""
    outputs = [("scores", T.FLOAT, [None, None])]
    if kind == "TreeEnsembleClassifier":
        outputs.insert(0, ("label", T.INT64, [None]))
    names = " ".join(name for name, *_ in outputs)
    made = node(kind, "x", names, domain="ai.onnx.ml", **attributes)
    return onnx_models.model([made], [("x", element, [None, FEATURES])], outputs)


def ask(model, x):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})


ROWS = st.lists(
    st.lists(st.sampled_from([*NUMBERS, np.nan, 0.5]), min_size=FEATURES, max_size=FEATURES),
    min_size=1,
    max_size=5,
)


@given(st.one_of(regressors(), classifiers()), ROWS, st.sampled_from(["f4", "f8"]))
@settings(max_examples=100, deadline=None)
def test_the_operators_give_what_the_ensemble_gives(made, rows, dtype):
    """Equal bit by bit, but for exponentials and sums of more than one order."""
    model = ensemble(*made, T.FLOAT if dtype == "f4" else T.DOUBLE)
    x = np.array(rows, dtype)
    right, found = ask(model, x), ask(rewrite(model, {"x_dim_0": len(x)}), x)
    for a, b in zip(right, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=2e-6, atol=2e-7)


# Three leaves, of which NaN in x[1] leads to the second.
STUMPS = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 0, 1, 0, 0, 2, 0, 0],
    "nodes_modes": [
        "BRANCH_LEQ",
        "LEAF",
        "BRANCH_LEQ",
        "LEAF",
        "LEAF",
        "BRANCH_LEQ",
        *["LEAF"] * 2,
    ],
    "nodes_values": [0.5, 0.0, 1.5, 0.0, 0.0, -0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
    "nodes_missing_value_tracks_true": [0, 0, 1, 0, 0, 0, 0, 0],
}
LEAVES = {
    "class_treeids": [0, 0, 0, 1, 1],
    "class_nodeids": [1, 3, 4, 1, 2],
    "class_ids": [0] * 5,
    "class_weights": [-0.2, 0.3, 0.7, -0.5, 0.25],
}


def binary_classifier(**more):
    """As LightGBM is exported: opset 9, the label's size is wrong, other operators follow."""
    attributes = {**STUMPS, **LEAVES, "post_transform": "LOGISTIC", "classlabels_int64s": [0, 1]}
    attributes = {name: value for name, value in (attributes | more).items() if value is not None}
    nodes = [
        node("TreeEnsembleClassifier", "x", "l p", domain="ai.onnx.ml", **attributes),
        node("Cast", "l", "label", to=T.INT64),
        node("Mul", "p one", "probabilities"),
    ]
    made = onnx_models.model(
        nodes,
        [("x", T.FLOAT, [None, FEATURES])],
        [("label", T.INT64, [1]), ("probabilities", T.FLOAT, [None, 2])],
        {"one": np.ones(1, np.float32)},
    )
    made.opset_import[0].version, made.opset_import[1].version = 9, 1
    return made


def test_an_export_becomes_a_library(tmp_path):
    onnx.save(binary_classifier(), tmp_path / "m.onnx")
    assert "checked" in compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    assert "input  x: float32[1,3]" in compile("--show", tmp_path / "m.so")
    with (
        shmbridge.connect(f"aot://{tmp_path}/m.so") as compiled,
        shmbridge.connect(f"onnx://{tmp_path}/m.onnx") as original,
    ):
        for row in ([0, 0, 0], [1, np.nan, -1], [1, 2, np.nan]):
            x = np.array([row], np.float32)
            right = expected(tmp_path / "m.onnx", x=x)
            for runner in (compiled, original):
                runner.evaluate({"x": x})
                assert np.ravel(runner.advice["label"]) == right[0]
                np.testing.assert_allclose(
                    np.ravel(runner.advice["probabilities"]), right[1][0], rtol=1e-6
                )


def test_the_number_of_rows_is_given(tmp_path):
    onnx.save(binary_classifier(), tmp_path / "m.onnx")
    compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", "--dim", "x_dim_0=3")
    assert "input  x: float32[3,3]" in compile("--show", tmp_path / "m.so")


def test_a_tree_ensemble_of_opset_5():
    def tensor(name, values, dtype):
        return onnx.numpy_helper.from_array(np.array(values, dtype), name)

    # In the first tree x[0] of 1, 3 or 5 leads to the first leaf.
    made = node(
        "TreeEnsemble",
        "x",
        "y",
        domain="ai.onnx.ml",
        n_targets=2,
        aggregate_function=1,
        tree_roots=[0, 2],
        nodes_featureids=[0, 1, 2],
        nodes_modes=tensor("modes", [6, 3, 0], np.uint8),
        nodes_splits=tensor("splits", [0, 0.5, 1.5], np.float32),
        membership_values=tensor("members", [1, 3, 5, np.nan], np.float32),
        nodes_trueleafs=[1, 1, 1],
        nodes_truenodeids=[0, 1, 3],
        nodes_falseleafs=[0, 1, 1],
        nodes_falsenodeids=[1, 2, 4],
        leaf_targetids=[0, 1, 0, 1, 0],
        leaf_weights=tensor("weights", [1.5, -2, 3, 0.25, 8], np.float32),
    )
    model = onnx_models.model(
        [made], [("x", T.FLOAT, [None, FEATURES])], [("y", T.FLOAT, [None, 2])]
    )
    model.opset_import[1].version = 5
    x = np.array(np.meshgrid([0, 1, 3, 4, 5], [0, 1, np.nan], [1, 2]), np.float32).reshape(3, -1).T
    np.testing.assert_array_equal(ask(rewrite(model, {"x_dim_0": len(x)}), x)[0], ask(model, x)[0])


@pytest.mark.parametrize(
    "more, why",
    [
        ({"post_transform": "PROBIT"}, "PROBIT does not compile"),
        ({"classlabels_int64s": None, "classlabels_strings": ["a", "b"]}, "classes are texts"),
        ({"class_ids": [0, 1, 0, 1, 0]}, "two classes as weights of the first"),
        ({"classlabels_int64s": [1, 2, 3]}, "every leaf has its weight"),
        ({"nodes_truenodeids": [9, 0, 3, 0, 0, 1, 0, 0]}, "wrong or missing index"),
        ({"nodes_truenodeids": [0, 0, 3, 0, 0, 1, 0, 0]}, "leads to itself"),
    ],
)
def test_what_cannot_be_compiled(more, why, tmp_path):
    onnx.save(binary_classifier(**more), tmp_path / "m.onnx")
    assert why in compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=1)


def test_maps_of_probabilities_are_refused(tmp_path):
    made = binary_classifier()
    made.graph.node.append(node("ZipMap", "p", "z", domain="ai.onnx.ml", classlabels_int64s=[0, 1]))
    onnx.save(made, tmp_path / "m.onnx")
    assert "zipmap=False" in compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=1)


@pytest.mark.parametrize("name", ["RandomForestClassifier", "GradientBoostingRegressor"])
def test_a_model_of_scikit_learn(name, tmp_path):
    ensembles = pytest.importorskip("sklearn.ensemble", reason="needs scikit-learn")
    skl2onnx = pytest.importorskip("skl2onnx", reason="needs skl2onnx")
    rng = np.random.default_rng(0)
    x, classifier = rng.normal(size=(200, 5)).astype(np.float32), "Classifier" in name
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0) if classifier else x[:, 0] * x[:, 1]
    fitted = getattr(ensembles, name)(n_estimators=8, max_depth=4, random_state=0).fit(x, y)
    options = {"zipmap": False} if classifier else None
    onnx.save(skl2onnx.to_onnx(fitted, x[:1], options=options), tmp_path / "m.onnx")
    compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        for row, right in zip(x[:20], fitted.predict(x[:20]), strict=True):
            runner.evaluate({"X": row})
            found = runner.advice["label" if classifier else "variable"]
            assert np.ravel(found) == pytest.approx(right, rel=1e-5)

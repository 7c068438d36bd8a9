"""Tree ensembles of ai.onnx.ml, as scikit-learn and LightGBM export them, in ONNX's own operators.

All rows go down all trees at once, one level at a time: a tensor holds the place of each row in
each tree. The trees share one table of places: first the leaves, then the branches. A leaf leads to
itself, so after as many steps as the deepest tree has levels every place is a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shmbridge._compile.onnx_code import ELSE
from shmbridge._compile.toolchain import CompileError
from shmbridge.errors import UnsupportedError

OPSET = 18  # of the operators that are written
KINDS = ("TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier")
# As TreeEnsemble numbers them.
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def rewrite(model: Any, sizes: dict[str, int]) -> Any:
    """The model without tree ensembles, or None if it has none. sizes: of the inputs' open
    dimensions; others become 1. Errors: UnsupportedError, CompileError."""
    kinds = {node.op_type for node in model.graph.node if node.domain == "ai.onnx.ml"}
    if "ZipMap" in kinds:
        raise UnsupportedError(
            "expected probabilities as a tensor, found maps (ZipMap): export the model with "
            "zipmap=False, in skl2onnx with options={'zipmap': False}"
        )
    if not kinds & set(KINDS):
        return None
    model = _newer(model)
    graph = model.graph
    dtypes = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.value_info]}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.domain == "ai.onnx.ml" and node.op_type in KINDS:
            writer = _Writer(graph, f"{node.output[-1]}/")
            try:
                _write(writer, node, dtypes.get(node.input[0]) == TensorProto.DOUBLE)
            except (KeyError, IndexError, ValueError) as error:
                raise CompileError(
                    f"{node.op_type}: expected the attributes of ai.onnx.ml, found a wrong "
                    f"or missing index or attribute: {error}"
                ) from error
        else:
            graph.node.append(node)
    return _with_sizes(model, sizes)


def _newer(model: Any) -> Any:
    """The model in an opset that has the operators, with inferred dtypes."""
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        model.opset_import.append(helper.make_opsetid("", OPSET))
    elif max(versions) < OPSET:
        try:
            model = onnx.version_converter.convert_version(model, OPSET)
        except Exception as error:  # of C++
            raise CompileError(
                f"expected a model of opset {OPSET} or later, found {max(versions)}, which onnx "
                f"does not convert: {error}"
            ) from error
    return onnx.shape_inference.infer_shapes(model)


def _with_sizes(model: Any, sizes: dict[str, int]) -> Any:
    """Exporters leave the number of rows open, and the generator of C cannot."""
    for port in model.graph.input:
        for axis, size in enumerate(port.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                size.dim_value = sizes.get(size.dim_param or f"{port.name}_dim_{axis}", 1)
    for port in model.graph.output:
        port.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


# ---- The trees of a node ----


@dataclass
class _Branch:
    """If x[feature] MODE split, to the place `true`."""

    mode: str
    feature: int
    split: Any
    true: int
    false: int
    missing: bool  # NaN leads to `true`


@dataclass
class _Trees:
    weights: Any  # of each leaf, for each target
    scored: Any  # does the leaf have a weight for the target?
    branches: list[_Branch]
    roots: list[int]

    def leaves(self, root: int) -> tuple[list[int], int]:
        """Those of a tree, and its depth. Errors: ValueError for branches that are no tree."""
        first, level, found, depth, seen = len(self.weights), [root], [], 0, 0
        while level:
            found += [place for place in level if place < first]
            branches = [self.branches[place - first] for place in level if place >= first]
            depth, seen = depth + bool(branches), seen + len(branches)
            if seen > len(self.branches):
                raise ValueError("a branch that leads to itself")
            level = [place for branch in branches for place in (branch.true, branch.false)]
        return found, depth

    def need_all_targets(self) -> None:
        """Errors: UnsupportedError if a row may come to no leaf with a weight for a target."""
        sure = [self.scored[self.leaves(root)[0]].all(axis=0) for root in self.roots]
        if not np.any(sure, axis=0).all():
            raise UnsupportedError(
                f"expected for each class or target a tree whose every leaf has its weight: {ELSE}"
            )


def _from_ids(a: dict[str, Any], what: str, targets: int, dtype: Any) -> _Trees:
    """Those of a regressor or classifier, which name each node by its tree and number."""
    nodes = list(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))
    branching = [mode != "LEAF" for mode in a["nodes_modes"]]
    order = sorted(range(len(nodes)), key=branching.__getitem__)
    place = {nodes[i]: at for at, i in enumerate(order)}
    splits = _reals(a, "nodes_values", dtype)
    missing = a.get("nodes_missing_value_tracks_true") or [0] * len(nodes)
    branches = [
        _Branch(
            a["nodes_modes"][i].removeprefix("BRANCH_"),
            a["nodes_featureids"][i],
            splits[i],
            place[nodes[i][0], a["nodes_truenodeids"][i]],
            place[nodes[i][0], a["nodes_falsenodeids"][i]],
            bool(missing[i]),
        )
        for i in order
        if branching[i]
    ]
    leaves = [place[leaf] for leaf in zip(a[f"{what}_treeids"], a[f"{what}_nodeids"], strict=True)]
    weights = _reals(a, f"{what}_weights", dtype)
    roots = [i for i, node in enumerate(nodes) if not i or node[0] != nodes[i - 1][0]]
    return _Trees(
        *_table(len(nodes) - len(branches), targets, leaves, a[f"{what}_ids"], weights),
        branches,
        [place[nodes[i]] for i in roots],
    )


def _from_indices(a: dict[str, Any], dtype: Any) -> _Trees:
    """Those of a TreeEnsemble, which names nodes and leaves by their indices."""
    leaves, count = len(a["leaf_targetids"]), len(a["nodes_featureids"])

    def places(to: str, is_leaf: str) -> Iterable[int]:
        return (i if leaf else leaves + i for i, leaf in zip(a[to], a[is_leaf], strict=True))

    columns = zip(
        (MODES[mode] for mode in a["nodes_modes"]),
        a["nodes_featureids"],
        a["nodes_splits"],
        places("nodes_truenodeids", "nodes_trueleafs"),
        places("nodes_falsenodeids", "nodes_falseleafs"),
        map(bool, a.get("nodes_missing_value_tracks_true") or [0] * count),
        strict=True,
    )
    branches = [_Branch(*column) for column in columns]
    members = iter(a.get("membership_values", ()))
    for branch in branches[:]:
        if branch.mode == "MEMBER":
            _to_equalities(branch, [*takewhile(np.isfinite, members)], branches, leaves)
    table = _table(leaves, a["n_targets"], range(leaves), a["leaf_targetids"], a["leaf_weights"])
    return _Trees(*table, branches, [leaves + root for root in a["tree_roots"]])


def _to_equalities(
    branch: _Branch, members: list[Any], branches: list[_Branch], leaves: int
) -> None:
    """A branch for each member: the first stays in its place, the others come at the end."""
    branch.mode, branch.split = "EQ", members[0]
    for member in members[1:]:
        more = replace(branch, split=member)
        branch.false = leaves + len(branches)
        branches.append(more)
        branch = more


def _reals(a: dict[str, Any], name: str, dtype: Any) -> Any:
    """A list of float32, or a tensor that may be float64."""
    return np.asarray(a.get(f"{name}_as_tensor", a.get(name, ())), dtype)


def _table(
    leaves: int, targets: int, leaf: Iterable[int], target: Iterable[int], weights: Any
) -> tuple[Any, Any]:
    """The weights of every leaf, and which there are."""
    table, scored = np.zeros((leaves, targets), weights.dtype), np.zeros((leaves, targets), bool)
    where = list(leaf), list(target)
    np.add.at(table, where, weights)
    scored[where] = True
    return table, scored


# ---- What is written for it ----


@dataclass
class _Writer:
    """Appends to a graph."""

    graph: Any
    prefix: str  # of names
    count: int = 0

    def __call__(self, op: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """The name of a new node's output. Inputs that are no names are constants."""
        inputs = tuple(i if isinstance(i, str) else self.constant(i) for i in inputs)
        output = output or self._name()
        self.graph.node.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        """The name of a new constant."""
        name = self._name()
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"


def _write(w: _Writer, node: Any, double: bool) -> None:
    """double: the input is float64, as splits and sums are then. Errors: UnsupportedError, and
    KeyError, IndexError or ValueError for a wrong model."""
    a = {
        attribute.name: _plain(helper.get_attribute_value(attribute))
        for attribute in node.attribute
    }
    dtype = np.float64 if double else np.float32
    aggregate, transform = a.get("aggregate_function", "SUM"), a.get("post_transform", "NONE")
    classifier, labels = node.op_type == "TreeEnsembleClassifier", a.get("classlabels_int64s", [])
    if classifier:
        trees = _from_ids(a, "class", len(labels or a["classlabels_strings"]), dtype)
    elif node.op_type == "TreeEnsembleRegressor":
        trees = _from_ids(a, "target", a["n_targets"], dtype)
    else:
        trees, aggregate = _from_indices(a, dtype), AGGREGATES[a.get("aggregate_function", 1)]
        transform = TRANSFORMS[a.get("post_transform", 0)]
    if transform not in ("NONE", "SOFTMAX", "LOGISTIC"):
        raise UnsupportedError(f"post_transform {transform} does not compile: {ELSE}")
    if classifier and node.output[0] and not labels:
        raise UnsupportedError(
            "the model's classes are texts, which no tensor holds: train it with integers"
        )
    x = w("Cast", node.input[0], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    base, targets = _reals(a, "base_values", dtype), trees.weights.shape[1]
    if classifier and targets == 2 and not trees.scored[:, 1].any() and base.size < 2:
        _two_classes(w, node, trees, x, base, transform, labels)
        return
    if classifier and targets < 3:
        raise UnsupportedError(
            f"expected the weights of two classes as weights of the first, with one base value at "
            f"most: {ELSE}"
        )
    if classifier or aggregate in ("MIN", "MAX"):
        trees.need_all_targets()
    scores = _scores(w, trees, x, aggregate, base)
    if classifier and node.output[0]:
        best = w("ArgMax", scores, axis=1, keepdims=0)
        w("Gather", np.asarray(labels), best, output=node.output[0])
    if transform != "NONE" and targets > 1:
        scores = w("Softmax", scores, axis=1) if transform == "SOFTMAX" else w("Sigmoid", scores)
    element = TensorProto.DOUBLE if double and node.op_type == "TreeEnsemble" else TensorProto.FLOAT
    w("Cast", scores, to=element, output=node.output[-1])


def _two_classes(
    w: _Writer, node: Any, trees: _Trees, x: str, base: Any, transform: str, labels: list[int]
) -> None:
    """One score, of the second class."""
    trees.weights = trees.weights[:, :1]
    score = _scores(w, trees, x, "SUM", base)
    likely = bool((trees.weights >= 0).all())  # then scores are taken for probabilities
    one, least = (
        (base.dtype.type(1), base.dtype.type(0.5)) if likely else (None, base.dtype.type(0))
    )
    if node.output[0]:
        second = w("Squeeze", w("Greater", score, least), np.array([1]))
        w("Where", second, *(np.int64(label) for label in labels[::-1]), output=node.output[0])
    other = w("Sub", one, score) if likely and transform != "LOGISTIC" else w("Neg", score)
    both = w("Concat", other, score, axis=1)
    if transform == "LOGISTIC":
        both = w("Sigmoid", both)
    w("Cast", both, to=TensorProto.FLOAT, output=node.output[1])


def _scores(w: _Writer, trees: _Trees, x: str, aggregate: str, base: Any) -> str:
    """Of each row, for each target."""
    weights = trees.weights
    if aggregate in ("MIN", "MAX"):
        weights = np.where(trees.scored, weights, np.inf if aggregate == "MIN" else -np.inf)
    reduce = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(aggregate, "ReduceSum")
    chosen = w("Gather", weights.astype(base.dtype), _descend(w, trees, x, base.dtype))
    scores = w(reduce, chosen, np.array([1]), keepdims=0)
    if aggregate == "AVERAGE":
        scores = w("Div", scores, base.dtype.type(len(trees.roots)))
    return w("Add", scores, base) if base.size else scores


def _descend(w: _Writer, trees: _Trees, x: str, dtype: Any) -> str:
    """The leaf of each row in each tree."""
    columns = [(name, "i4") for name in ("feature", "yes", "no", "nan")]
    table = np.array(
        [(0, i, i, i, -np.inf, 0) for i in range(len(trees.weights))]
        + [_row(branch, dtype) for branch in trees.branches],
        [*columns, ("low", dtype), ("high", dtype)],
    )

    used = ["feature", "high", "yes", "no"]
    used += ["low"] if (table["low"] > -np.inf).any() else []
    used += ["nan"] if (table["nan"] != table["no"]).any() else []
    constants = {column: w.constant(table[column]) for column in used}
    # The roots, for each row.
    any_x = w("Gather", x, np.zeros(len(trees.roots), np.int32), axis=1)
    zeros = w("Cast", w("Less", any_x, any_x), to=TensorProto.INT32)
    at = w("Add", zeros, np.array(trees.roots, np.int32))
    for _ in range(max(trees.leaves(root)[1] for root in trees.roots)):
        look = {column: w("Gather", constants[column], at) for column in used}
        found = w("GatherElements", x, look["feature"], axis=1)
        yes = w("LessOrEqual", found, look["high"])
        if "low" in look:
            yes = w("And", yes, w("LessOrEqual", look["low"], found))
        at = w("Where", yes, look["yes"], look["no"])
        if "nan" in look:
            at = w("Where", w("IsNaN", found), look["nan"], at)
    return at


def _row(branch: _Branch, dtype: Any) -> tuple[Any, ...]:
    """Of the table: `low <= x <= high` leads to yes, NaN to nan, all else to no."""
    low, high, yes, no = -np.inf, dtype.type(branch.split), branch.true, branch.false
    nan = yes if branch.missing or branch.mode == "NEQ" else no
    if np.isnan(high):
        raise ValueError("a split that is NaN")
    if branch.mode in ("EQ", "NEQ"):
        low = high
    if branch.mode in ("LT", "GTE"):  # x < split: at most the number before it, if there is one
        high = np.nextafter(high, dtype.type(-np.inf)) if high > -np.inf else np.nan
    if branch.mode in ("GT", "GTE", "NEQ"):
        yes, no = no, yes
    return branch.feature, yes, no, nan, low, high


def _plain(value: Any) -> Any:
    """An attribute's text as str, its tensor as an array."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value

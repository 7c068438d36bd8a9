"""shmbridge compile compares what it made with ONNX Runtime, and keeps only what agrees."""

import functools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.cli import run
from support.compiling import compile, onnx_models
from support.onnx_models import T, node

import shmbridge
from shmbridge import _config

pytestmark = pytest.mark.usefixtures("quick")


def test_a_model_too_large_to_be_asked_is_not_checked(tmp_path):
    n = 1 << 21
    model = onnx_models.save(
        tmp_path / "m.onnx",
        [node("ReduceMax", "x", "y", keepdims=0)],
        [("x", T.FLOAT, [n, n])],
        [("y", T.FLOAT, [])],
    )
    assert "not checked: " in compile(model, "-o", tmp_path / "m.so")


def test_a_model_of_logarithms_is_compared_where_they_are_numbers(tmp_path):
    """The demo's, whose log(1 + x) is none below -1."""
    from shmbridge.demo.model import advise

    shutil.copy(_config.examples() / "c" / "model.onnx", tmp_path)
    said = run("compile", "model.onnx", "-o", "m.so", cwd=tmp_path).stdout
    assert "none of them negative; on negative ones," in said and "--check-inputs" in said
    features = np.arange(16, dtype=np.float32)
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        assert runner.evaluate({"features": features}) == advise({"features": features})


def test_a_model_that_differs_is_not_kept(tmp_path, monkeypatch):
    """Here the reference is another model."""
    from shmbridge._compile import onnx as source

    model = onnx_models.perceptron(tmp_path / "m.onnx", seed=0)
    other = Path(onnx_models.perceptron(tmp_path / "o.onnx", seed=1))
    ask = source._ask
    monkeypatch.setattr(source, "_ask", lambda _, arrays: ask(other, arrays))
    said = compile(model, "-o", tmp_path / "m.so", code=1)
    assert "do not deploy it" in said and "differs from ONNX Runtime by" in said
    assert not (tmp_path / "m.so").exists()
    compile(model, "-o", tmp_path / "m.so", "--no-check")
    assert (tmp_path / "m.so").exists()


@functools.cache
def operator_cases():
    """ONNX's own cases, by name."""
    from onnx.backend.test.loader import load_model_tests

    return {case.name: case for case in load_model_tests(kind="node")}


@pytest.mark.parametrize(
    "case, verdict",
    [
        ("test_triu_zero", "exact"),
        ("test_shape_start_greater_than_end", "exact"),
        ("test_reshape_allowzero_reordered", "depends on the inputs' values"),
        ("test_reduce_max_empty_set", "depends on the inputs' values"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, while onnx makes its cases
def test_operators_with_empty_tensors(case, verdict, tmp_path):
    import onnx

    onnx.save(operator_cases()[case].model, tmp_path / "m.onnx")
    wrong = verdict != "exact"
    said = compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=int(wrong))
    assert verdict in said, said
    assert (tmp_path / "m.so").exists() == (not wrong)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_operator_that_is_compiled_wrongly_is_found_though_its_integers_are_lengths(tmp_path):
    import onnx

    onnx.save(
        operator_cases()["test_attention_4d_causal_nonpad_batch_prefill"].model, tmp_path / "m.onnx"
    )
    # The templates that other tests share do not know this operator.
    assert "do not deploy it" in run("compile", "m.onnx", "-o", "m.so", cwd=tmp_path).stderr
    assert not (tmp_path / "m.so").exists()


@pytest.mark.parametrize("rows, most", [(None, 999), (5, 4)])
def test_integers_reach_as_far_as_the_model_accepts(tmp_path, rows, most):
    table = np.arange(rows or 1, dtype=np.int64)
    nodes = [node("Gather", "table x", "y") if rows else node("Add", "x table", "y")]
    tensor = [T.INT64, [200]]
    model = onnx_models.save(
        tmp_path / "m.onnx", nodes, [("x", *tensor)], [("y", *tensor)], {"table": table}
    )
    said = compile(model, "-o", tmp_path / "m.so")
    low, high = re.search(r"x (-?\d+) to (\d+)", said).groups()
    assert most // 2 < int(high) <= most and -most - 1 <= int(low) < 0, said


def branch(folder, limit):
    """A model that is x + 1 where x is below 100, and what the limit says elsewhere."""
    nodes = [
        node("Add", "x one", "more"),
        node("Less", "x far", "near"),
        node("Where", "near more limit", "y"),
    ]
    constants = {"one": np.float32(1), "far": np.float32(100), "limit": np.float32(limit)}
    return onnx_models.save(folder, nodes, [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])], constants)


def test_inputs_of_the_users_reach_what_random_ones_do_not(tmp_path, monkeypatch):
    """Here the reference is another model, which differs far from where random inputs lie."""
    from shmbridge._compile import onnx as source

    model, other = branch(tmp_path / "m.onnx", 5), Path(branch(tmp_path / "o.onnx", 6))
    ask = source._ask
    monkeypatch.setattr(source, "_ask", lambda _, arrays: ask(other, arrays))
    assert "checked: exact" in compile(model, "-o", tmp_path / "m.so")
    np.savez(tmp_path / "far.npz", x=np.float32([[1, 2], [3, 400]]))
    (tmp_path / "m.so").unlink()
    said = compile(model, "-o", tmp_path / "m.so", "--check-inputs", tmp_path / "far.npz", code=1)
    assert (
        "do not deploy it" in said
        and "by 1 where values reach 6" in said
        and not (tmp_path / "m.so").exists()
    )
    np.savez(tmp_path / "near.npz", x=np.float32([1, 20]))
    said = compile(model, "-o", tmp_path / "m.so", "--check-inputs", tmp_path / "near.npz")
    assert "exact" in said and "on 1 given inputs (x 1 to 20)" in said and "random" not in said


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"x": np.float64([1, 2])}, "expected x: float32[2], or with one more dim in front, found"),
        ({"x": np.float32([1, 2]), "z": np.float32(1)}, "found also z"),
        ({}, "found nothing"),
        (None, "numpy.savez"),
    ],
)
def test_inputs_that_are_none_of_the_models_are_refused(tmp_path, arrays, why):
    words = branch(tmp_path / "m.onnx", 5), "-o", tmp_path / "m.so", "--check-inputs"
    if arrays is None:
        np.save(tmp_path / "i.npy", np.float32([1, 2]))
        assert "omit --no-check" in compile(*words, tmp_path / "i.npy", "--no-check", code=2)
    else:
        np.savez(tmp_path / "i.npz", **arrays)
    (file,) = tmp_path.glob("i.*")
    assert why in compile(*words, file, code=1)

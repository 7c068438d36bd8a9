"""shmbridge compile compares what it made with ONNX Runtime, and keeps only what agrees."""

import functools
import os
import re
import shutil
import signal
import time
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
    assert "none of them negative; on negative ones," in said and "ask both models" in said
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


@pytest.mark.parametrize(
    ("opset", "version", "known"),
    [(99, 8, "is till opset 2"), (17, 99, "max supported IR version: 1")],
)
def test_a_model_of_a_version_that_the_runtime_does_not_know_is_written_only_without_the_check(
    opset, version, known, tmp_path
):
    model = onnx_models.onnx.load(onnx_models.two_minus(tmp_path / "m.onnx"))
    model.opset_import[0].version, model.ir_version = opset, version
    onnx_models.onnx.save(model, tmp_path / "m.onnx")
    said = compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=1)
    assert known in said and "or say --no-check" in said and "/onnxruntime_src" not in said
    assert not (tmp_path / "m.so").exists()
    compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", "--no-check")


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


@pytest.mark.parametrize("rows, most", [(1 << 20, 999), (5, 4)])
def test_integers_reach_as_far_as_the_model_accepts(tmp_path, monkeypatch, rows, most):
    from shmbridge._compile import onnx as source

    table = np.arange(rows, dtype=np.int64)
    tensor = [T.INT64, [200]]
    model = onnx_models.save(
        tmp_path / "m.onnx",
        [node("Gather", "table x", "y")],
        [("x", *tensor)],
        [("y", *tensor)],
        {"table": table},
    )
    ask = source._ask

    def noting(model, arrays):
        answer = ask(model, arrays)
        with (tmp_path / "accepted").open("a") as file:  # it is asked in another process
            print(*arrays[0], file=file)
        return answer

    monkeypatch.setattr(source, "_ask", noting)
    compile(model, "-o", tmp_path / "m.so")
    accepted = np.loadtxt(tmp_path / "accepted", int)
    assert most // 2 < accepted.max() <= most


def branch(folder, limit, far=1e8):
    """A model that is x + 1 where x is below far, and what the limit says elsewhere."""
    nodes = [
        node("Add", "x one", "more"),
        node("Less", "x far", "near"),
        node("Where", "near more limit", "y"),
    ]
    constants = {"one": np.float32(1), "far": np.float32(far), "limit": np.float32(limit)}
    return onnx_models.save(folder, nodes, [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])], constants)


def test_random_inputs_reach_a_threshold_that_is_far_from_0(tmp_path, monkeypatch):
    from shmbridge._compile import onnx as source

    model = branch(tmp_path / "m.onnx", 5, 100)
    other, ask = Path(branch(tmp_path / "o.onnx", 6, 100)), source._ask
    monkeypatch.setattr(source, "_ask", lambda _, arrays: ask(other, arrays))
    assert "do not deploy it" in compile(model, "-o", tmp_path / "m.so", code=1)


def test_the_verdict_says_what_was_asked_also_of_nan(tmp_path):
    said = compile(branch(tmp_path / "m.onnx", 5), "-o", tmp_path / "m.so")
    assert re.search(r"on 12 random inputs \(x -\d.*e\+06 to \d.*e\+06\)", said), said
    assert "the same where inputs are NaN" in said


def test_answers_that_are_nan_alone_are_compared_but_not_without_end(tmp_path, monkeypatch):
    sums = onnx_models.save(
        tmp_path / "m.onnx",
        [node("ReduceSum", "x", "y")],
        [("x", T.FLOAT, [300])],
        [("y", T.FLOAT, [1])],
    )
    assert "the same where inputs are NaN" in compile(sums, "-o", tmp_path / "m.so")
    monkeypatch.setattr("shmbridge._compile.check.ENOUGH", 1e9)
    nothing = branch(tmp_path / "n.onnx", float("nan"), -1e9)
    assert "no answer has a number" in compile(nothing, "-o", tmp_path / "n.so")


def test_what_only_rounding_decides_is_no_difference(tmp_path):
    """The sine of a million times something differs between any two libraries."""
    weights = {"w": np.full((40, 1), 1.1, np.float32)}
    nodes = [node("MatMul", "x w", "p"), node("Sin", "p", "y")]
    ports = [("x", T.FLOAT, [1, 40])], [("y", T.FLOAT, [1, 1])]
    model = onnx_models.save(tmp_path / "m.onnx", nodes, *ports, weights)
    assert "checked: " in compile(model, "-o", tmp_path / "m.so")


def test_a_model_with_a_scalar_input_is_compared(tmp_path):
    nodes = [node("Pad", "x p", "padded"), node("Add", "padded v", "y")]
    ports = [("x", T.FLOAT, [2]), ("v", T.FLOAT, [])], [("y", T.FLOAT, [4])]
    model = onnx_models.save(tmp_path / "m.onnx", nodes, *ports, {"p": np.array([1, 1])})
    said = compile(model, "-o", tmp_path / "m.so")
    assert "checked: exact" in said and "v -" in said


def test_a_model_with_its_weights_in_another_file_is_compiled(tmp_path):
    import onnx

    model = onnx.load(onnx_models.perceptron(tmp_path / "plain.onnx"))
    (tmp_path / "model").mkdir()
    external = {"save_as_external_data": True, "location": "weights", "size_threshold": 0}
    onnx.save(model, tmp_path / "model" / "m.onnx", **external)
    assert (tmp_path / "model" / "weights").exists()
    assert "checked: " in compile(tmp_path / "model" / "m.onnx", "-o", tmp_path / "m.so")
    (tmp_path / "model" / "weights").unlink()
    assert "weights" in compile(tmp_path / "model" / "m.onnx", "-o", tmp_path / "m.so", code=1)


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        (lambda *_: time.sleep(600), "not checked: the answers took more than", 0),
        (lambda *_: np.ones(1 << 36), "not checked: ", 0),
        (lambda *_: os.kill(os.getpid(), signal.SIGSEGV), "asking it ended with SIGSEGV", 1),
        (lambda *_: os._exit(3), "asking it ended with exit 3", 1),
    ],
)
def test_what_is_asked_cannot_take_forever_all_memory_or_the_command(
    tmp_path, monkeypatch, answer, said, code
):
    from shmbridge._compile import check
    from shmbridge._compile import onnx as source

    monkeypatch.setattr(source, "_ask", answer)
    monkeypatch.setattr(check, "SECONDS", 2)
    model = branch(tmp_path / "m.onnx", 5)
    assert said in compile(model, "-o", tmp_path / "m.so", code=code)
    assert (tmp_path / "m.so").exists() != bool(code)


def test_what_the_runtime_refuses_is_counted_not_printed(tmp_path):
    nodes = [node("Gather", "table x", "y")]
    table = {"table": np.arange(4, dtype=np.float32)}
    ports = [("x", T.INT64, [2])], [("y", T.FLOAT, [2])]
    onnx_models.save(tmp_path / "m.onnx", nodes, *ports, table)
    done = run("compile", "m.onnx", "-o", "m.so", cwd=tmp_path)
    assert "rejected" in done.stdout and done.stderr == "", done.stderr

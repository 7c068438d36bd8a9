"""shmbridge compile: from ONNX to a library that gives what ONNX Runtime gives; aot:// in
Python."""

import os
import shutil
import threading

import numpy as np
import pytest
from support.cli import run
from support.compiling import compile, expected, onnx_models
from support.onnx_models import T, node
from support.values import DTYPES, expect_same

import shmbridge
from shmbridge.errors import InvalidError, MismatchError, ModelError

pytestmark = pytest.mark.usefixtures("quick")


def test_open_sizes_and_a_missing_leading_one(models):
    rng = np.random.default_rng(1)
    with shmbridge.connect(f"aot://{models}/perceptron.so") as runner:
        for batch in (1, 3, 50, 2, 1):
            x = rng.normal(size=(batch, 30)).astype(np.float32)
            np.testing.assert_allclose(
                runner.evaluate({"x": x}),
                expected(models / "perceptron.onnx", x=x)[0],
                rtol=1e-4,
                atol=1e-5,
            )
        one = runner.evaluate({"x": x[0]})
        assert one.shape == (1,)
        with pytest.raises(MismatchError, match=r"float32\[\?,30\], found float32\[1,31\]"):
            runner.evaluate({"x": np.zeros((1, 31), np.float32)})
        with pytest.raises(ModelError, match=r'"x": dim 0 must be 1 to 2147483647'):
            runner.evaluate({"x": np.zeros((0, 30), np.float32)})
        assert runner.evaluate({"x": x[0]}) == one


def edges(dtype):
    """[2, 3] values of a dtype, with its ends and what is special."""
    if dtype.kind in "iu":
        high, low = np.iinfo(dtype).max, np.iinfo(dtype).min
        return np.array([[high, low, high - 1], [low + 1, 0, 1]], dtype)
    return np.array([[np.nan, -np.inf, np.inf], [-0.0, 0.0, 1.0]]).astype(dtype)


def test_every_dtype_and_scalars_in_one_model(tmp_path, monkeypatch):
    """Each input comes out again, as a tensor and as a scalar; the names are no names of C."""
    if shutil.which("clang-22"):
        monkeypatch.setenv("CC", "clang-22")
    has_bfloat16 = "CC" in os.environ  # C compilers have it since gcc 13 and clang 17
    nodes, inputs, outputs, features = [], [], [], {}
    for dtype in DTYPES if has_bfloat16 else DTYPES[:-1]:
        element = onnx_models.helper.np_dtype_to_tensor_dtype(dtype)
        for value in edges(dtype), edges(dtype)[0, 0]:
            name = f"{dtype}/{value.ndim}"
            features[name] = value
            nodes.append(node("Identity", name, f"{name}:out"))
            inputs.append((name, element, value.shape))
            outputs.append((f"{name}:out", element, value.shape))
    compile(
        onnx_models.save(tmp_path / "all.onnx", nodes, inputs, outputs), "-o", tmp_path / "all.so"
    )
    with shmbridge.connect(f"aot://{tmp_path}/all.so") as runner:
        runner.evaluate(features)
        expect_same(runner.advice, {f"{name}:out": value for name, value in features.items()})


def test_weights_given_to_a_model_that_has_them(models):
    with pytest.raises(InvalidError, match="its weights are inside: leave weights=FILE out"):
        shmbridge.connect(f"aot://{models}/perceptron.so?weights=x")


def test_large_weights_inside(tmp_path):
    """They lie in the library as bytes, not as C: the compiler would take minutes."""
    weights = np.random.default_rng(3).normal(size=(400, 500)).astype(np.float32)
    model = onnx_models.save(
        tmp_path / "big.onnx",
        [node("MatMul", "x w", "y")],
        [("x", T.FLOAT, [1, 400])],
        [("y", T.FLOAT, [1, 500])],
        {"w": weights},
    )
    compile(model, "-o", tmp_path / "big.so")
    assert (tmp_path / "big.so").stat().st_size > weights.nbytes
    x = np.ones((1, 400), np.float32)
    with shmbridge.connect(f"aot://{tmp_path}/big.so") as runner:
        assert np.allclose(runner.evaluate({"x": x}), x @ weights, rtol=1e-3, atol=1e-3)


def test_threads_at_once(tmp_path):
    """The generated code keeps a sequence in static memory: each thread must have its own."""
    nodes = [
        node("Neg", "x", "n"),
        node("SequenceConstruct", "x n", "pair"),
        node("SequenceAt", "pair one", "all"),
        node("MatMul", "all w", "y"),
    ]
    rng = np.random.default_rng(4)
    model = onnx_models.save(
        tmp_path / "m.onnx",
        nodes,
        [("x", T.FLOAT, [32, 500])],
        [("y", T.FLOAT, [32, 3])],
        {"one": np.int64(1), "w": rng.normal(size=(500, 3)).astype(np.float32)},
    )
    # With the generator in a process of its own, as users have it.
    done = run("compile", model, "-o", tmp_path / "m.so")
    assert done.returncode == 0, done.stderr
    xs = [rng.normal(size=(32, 500)).astype(np.float32) for _ in range(6)]
    right, wrong = [expected(model, x=x)[0] for x in xs], []

    def ask(index):
        with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
            for _ in range(200):
                if not np.allclose(
                    runner.evaluate({"x": xs[index]}), right[index], rtol=1e-3, atol=1e-2
                ):
                    wrong.append(index)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_sizes_given(tmp_path):
    nodes = [node("ArgMax", "x", "y", axis=1, keepdims=0)]
    model = onnx_models.save(
        tmp_path / "m.onnx", nodes, [("x", T.FLOAT, ["n", "k"])], [("y", T.INT64, ["n"])]
    )
    said = compile(model, "-o", tmp_path / "m.so", code=1)
    assert "use onnx://" in said and "--dim NAME=SIZE" in said and not (tmp_path / "m.so").exists()
    compile(model, "-o", tmp_path / "m.so", "--dim", "n=2", "--dim", "k=5")
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        assert list(runner.evaluate({"x": np.eye(5, dtype=np.float32)[3:]})) == [3, 4]

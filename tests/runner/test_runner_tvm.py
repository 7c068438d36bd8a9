"""examples/tvm_runner, a third party's runner: installed as pip would, it is found by its scheme
and gives what ONNX Runtime gives."""

import os

import numpy as np
import pytest
from support.distributions import installed_example

from shmbridge import InvalidError, MismatchError, connect

pytest.importorskip("tvm", reason="Apache TVM (pip install apache-tvm) is not there")
pytest.importorskip("onnx.helper", reason="ONNX (pip install onnx) is not there")
X = np.random.default_rng(0).normal(size=(1, 20)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The directory that has the distribution."""
    with installed_example("tvm_runner", tmp_path_factory.mktemp("site-packages")) as where:
        yield where


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """y = 2 - x; best: the index of the greatest y."""
    from support.onnx_models import T, node, save

    path = tmp_path_factory.mktemp("tvm") / "model.onnx"
    nodes = [node("Sub", "two x", "y"), node("ArgMax", "y", "best", axis=1, keepdims=0)]
    floats = [T.FLOAT, [1, 20]]
    outputs = [("y", *floats), ("best", T.INT64, [1])]
    save(path, nodes, [("x", *floats)], outputs, {"two": np.float32(2)})
    return path


@pytest.fixture(scope="module")
def model(onnx_file, installed):
    from shmbridge_tvm import compile_onnx

    compile_onnx(onnx_file, onnx_file.with_suffix(".so"))
    return onnx_file.with_suffix(".so")


def test_it_gives_what_onnx_runtime_gives(model, onnx_file):
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not there")
    y, best = runtime.InferenceSession(onnx_file).run(None, {"x": X})
    with connect(f"tvm://{model}") as runner:
        advice = runner.evaluate({"x": X})
        assert list(advice) == ["y", "best"]
        assert np.array_equal(advice["y"], y) and np.array_equal(advice["best"], best)
        row = runner.evaluate({"x": X[0]})
        assert np.array_equal(row["y"], y[0]) and row["best"] == best[0]


def test_what_does_not_fit_is_refused_and_the_next_request_served(model):
    with connect(f"tvm://{model}") as runner:
        for wrong, found in [
            ({"x": X[:, :3]}, r"float32\[1, 3\]"),
            ({"x": X.astype(float)}, r"float64\[1, 20\]"),
            ({"z": X}, "no tensor"),
            ({"x": "text"}, "no tensor"),
        ]:
            with pytest.raises(
                MismatchError, match=rf'"x": the model expects float32\[1, 20\], found {found}'
            ):
                runner.evaluate(wrong)
            assert np.array_equal(runner.evaluate({"x": X})["y"], 2 - X)


def test_what_does_not_open_says_why(model, tmp_path):
    with pytest.raises(
        InvalidError, match="expected a model that TVM has compiled, found no file '.*nowhere.so'"
    ):
        connect(f"tvm://{tmp_path}/nowhere.so")
    with pytest.raises(InvalidError, match="unexpected keyword argument 'speed'"):
        connect(f"tvm://{model}?speed=9")


def test_c_reaches_it_through_the_python_in_its_process(model, installed, c_runner, embedding):
    environment = {**os.environ, "SHMBRIDGE_PYTHON": str(embedding), "PYTHONPATH": str(installed)}
    runner = c_runner(f"tvm://{model}", env=environment)
    runner.do("feature", "x", 11, 2, 1, 20, X.tobytes().hex())
    assert runner.do("evaluate", 0).startswith(
        f"0 | y 11 0 2 1 20 {(2 - X).tobytes().hex()} | best 5 0 1 1 "
    )

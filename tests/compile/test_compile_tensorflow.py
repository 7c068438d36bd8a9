"""shmbridge compile of TensorFlow SavedModels, which needs no TensorFlow when it runs."""

import os
import subprocess

import numpy as np
import pytest

tf = pytest.importorskip(
    "tensorflow", reason="needs tensorflow: pip install 'shmbridge[tensorflow]'"
)

from support.compiling import compile  # noqa: E402

import shmbridge  # noqa: E402
from shmbridge._compile import tensorflow  # noqa: E402
from shmbridge.errors import InvalidError  # noqa: E402


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A SavedModel with products of matrices of several sizes, two dtypes, and an open size."""

    class Model(tf.Module):
        def __init__(self):
            random = np.random.default_rng(0)
            self.w = tf.Variable(random.normal(size=(60, 200)).astype(np.float32))
            self.v = tf.Variable(random.normal(size=(200, 64)).astype(np.float32))

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 60], tf.float32, name="x"),
                tf.TensorSpec([3], tf.int64, name="n"),
            ]
        )
        def score(self, x, n):
            y = tf.nn.softmax(tf.nn.relu(x @ self.w) @ self.v)
            return {
                "y": y,
                "best": tf.argmax(y, 1),
                "n/double": 2 * n,
                "turned": tf.matmul(y, y, transpose_b=True),
            }

        @tf.function(input_signature=[tf.TensorSpec([9], tf.float32, name="x")])
        def ordered(self, x):
            return {"y": tf.sort(x)}

    model, folder = Model(), tmp_path_factory.mktemp("saved")
    tf.saved_model.save(
        model, str(folder), signatures={"serving_default": model.score, "ordered": model.ordered}
    )
    return folder


def test_a_saved_model(saved, tmp_path):
    library = tmp_path / "m.so"
    assert "XLA needs every size: pass --dim x:0=SIZE" in compile(saved, "-o", library, code=1)
    said = compile(saved, "-o", library, "--dim", "x:0=40")
    assert "checked: within tolerance: differs from TensorFlow by" in said
    loaded = tf.saved_model.load(str(saved)).signatures["serving_default"]
    x, n = np.random.default_rng(1).normal(size=(40, 60)).astype(np.float32), np.arange(3)
    right = loaded(x=tf.constant(x), n=tf.constant(n))
    with shmbridge.connect(f"aot://{library}") as one, shmbridge.connect(f"aot://{library}") as two:
        for runner in (one, two, one):
            runner.evaluate({"x": x, "n": n})
            for name, value in runner.advice.items():
                np.testing.assert_allclose(value, right[name].numpy(), rtol=1e-3, atol=1e-5)
    with pytest.raises(InvalidError, match="weights are inside"):
        shmbridge.connect(f"aot://{library}?weights=x")
    needed = subprocess.run(
        ["readelf", "-d", library], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert "tensorflow" not in needed and "absl" not in needed


def test_a_model_of_keras(tmp_path):
    """Whose variables and gradients XLA's command does not find: constants stand for them."""
    layers = tf.keras.layers
    net = tf.keras.Sequential(
        [layers.Input((6,), name="x"), layers.Dense(8, "swish"), layers.Dense(3)]
    )
    net.export(str(tmp_path / "net"), verbose=False)
    library = tmp_path / "m.so"
    assert "checked" in compile(tmp_path / "net", "-o", library, "--dim", "x:0=2")


def test_what_cannot_be_compiled(saved, tmp_path):
    library = tmp_path / "m.so"
    assert "sort_lib of XLA's runtime" in compile(
        saved, "-o", library, "--signature", "ordered", code=1
    )
    assert "expected one of" in compile(saved, "-o", library, "--signature", "none", code=1)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_no_saved_model(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"junk")
    assert "expected a TensorFlow SavedModel" in compile(tmp_path, "-o", tmp_path / "m.so", code=1)


def test_an_output_that_xla_does_not_name_is_an_error(saved, tmp_path, monkeypatch):
    names = tensorflow._names
    monkeypatch.setattr(tensorflow, "_names", lambda prefix, ports: names(f"{prefix}new_", ports))
    said = compile(saved, "-o", tmp_path / "m.so", "--dim", "x:0=40", code=1)
    assert "XLA does not name an output: this version" in said and os.listdir(tmp_path) == []

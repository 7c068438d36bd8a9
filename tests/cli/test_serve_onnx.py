"""shmbridge serve with an ONNX file."""

import numpy as np
import pytest
from support.cli import X, evaluate, run, together

import shmbridge
from shmbridge.logs import TrainingLog


def onnx_file(path):
    """x [batch, 3] -> y = x·w [batch]."""
    pytest.importorskip("onnx")
    from support.onnx_models import T, node, save

    ports = [("x", T.FLOAT, ["batch", 3])], [("y", T.FLOAT, ["batch"])]
    return save(path, [node("MatMul", "x w", "y")], *ports, {"w": np.float32([1, 10, 100])})


def test_onnx_takes_a_request_without_the_batch_dim(serve, name, where):
    serving = serve(name, "--onnx", onnx_file(where / "m.onnx"), "--threads", 2)
    assert evaluate(name, x=X, function="main") == 321.0
    assert evaluate(name, x=X[None]).tolist() == [321.0]
    assert evaluate(name, x=np.stack([X, X])).tolist() == [321.0, 321.0]
    assert "x: float32[?, 3]" in serving.end()


@pytest.mark.parametrize("features, found", [
    ({"x": X.astype(np.float64)}, r"float64\[3\]"),
    ({"x": np.zeros(4, np.float32)}, r"float32\[4\]"),
    ({"z": X}, "z"),
    ({"x": "text"}, "text or a list"),
])  # fmt: skip
def test_onnx_shows_both_sides_of_a_mismatch(serve, name, where, features, found):
    serve(name, "--onnx", onnx_file(where / "m.onnx"))
    with pytest.raises(shmbridge.MismatchError, match=rf"expects.*float32\[\?,3\].*found {found}"):
        evaluate(name, **features)
    assert evaluate(name, x=X) == 321.0


def test_without_onnx_runtime_serve_says_what_to_install(where):
    missing = where / "missing.so"
    model = onnx_file(where / "m.onnx")
    done = run("serve", "n", "--onnx", model, SHMBRIDGE_ONNXRUNTIME=str(missing))
    assert done.returncode == 1 and str(missing) in done.stderr
    assert "Traceback" not in done.stderr


def test_onnx_records_what_it_advised(serve, name, where):
    log = where / "log"
    serving = serve(name, "--onnx", onnx_file(where / "m.onnx"), "--record", log)
    assert together(name, [{"x": X}, {"x": X * 2}]) == [321.0, 642.0]
    serving.end()
    assert sorted(r.advice["advice"].item() for r in TrainingLog(log)) == [321.0, 642.0]


def test_python_gets_only_what_the_model_refuses(name, where, in_thread):
    pytest.importorskip("onnxruntime")
    counts = []

    def ask():
        with shmbridge.connect(name) as runner:
            wide = runner.evaluate({"x": X, "s": "other"}, dtype=np.float64)
            return [wide, runner.evaluate({"y": X}), runner.evaluate({"x": X})]

    with (
        shmbridge.connect(f"onnx://{onnx_file(where / 'm.onnx')}") as model,
        shmbridge.Host(name, until_idle=0.3) as host,
    ):
        asking = in_thread(ask)
        host.answer_by(model._r, counts.append)
        refused = []
        for request in host:
            refused.append(list(request))
            request.reply("none")
        assert asking.result() == [321.0, "none", 321.0] and refused == [["y"]]
    assert sum(counts) == 2

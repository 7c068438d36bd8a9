"""What importing shmbridge brings along, and that its types are right for its users."""

import subprocess
import sys
import textwrap

import pytest

import shmbridge


def test_importing_brings_none_of_the_extras_along(python):
    code = """
        import sys, shmbridge
        extras = {"google", "onnxruntime", "onnx", "torch", "grpc", "click", "rich", "ml_dtypes", "flatbuffers", "ray"}
        print(sorted(extras & {module.partition(".")[0] for module in sys.modules}))
    """
    assert python(code).end() == (0, "[]")


def test_importing_leaves_shm_and_signals_and_threads_alone(python, shm_files):
    code = """
        import os, signal, threading
        before = {s: signal.getsignal(s) for s in signal.Signals}, threading.active_count()
        import shmbridge
        print(before == ({s: signal.getsignal(s) for s in signal.Signals}, threading.active_count()))
    """
    assert python(code).end() == (0, "True")


def test_the_version_is_the_c_librarys():
    from importlib.metadata import version

    assert shmbridge.__version__ == version("shmbridge")


def test_everything_public_has_a_docstring_and_is_there():
    for name in shmbridge.__all__:
        thing = getattr(shmbridge, name)
        assert name == "__version__" or thing.__doc__


PROGRAM = """
    from collections.abc import Mapping
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    import shmbridge
    from shmbridge import Batch, Host, Request, Runner, TensorSpec


    def model(features: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        x: npt.NDArray[np.float32] = features["x"]
        return x * 2


    def serve() -> None:
        with Host("name", features=[TensorSpec("x", np.float32, (None,))], until_idle=1.5) as host:
            host.serve(model, max_batch=8)
            for request in host:
                sent: bool = request.reply(model(request))
                request.reply(a=1, b="text")
                in_place = request.view("x")
                in_place.sum()
            taken: Request | None = host.receive(timeout=1)
            if taken is not None:
                taken.fail(ValueError("no"))
            batch: Batch
            for batch in host.batches(max_size=4, max_wait=1e-3):
                batch.reply(batch.gather("x").sum(axis=1))


    def ask(runner: Runner) -> float:
        try:
            return float(runner.evaluate({"x": np.zeros(3), "name": "f"}, dtype=np.float64))
        except (shmbridge.ModelError, shmbridge.HostGoneError) as error:
            print(error.status)
            return 0.0


    with shmbridge.connect("shm://name", deadline=0.5, wait="block") as runner:
        ask(runner)
"""
WRONG = [
    "shmbridge.Host(5)",
    'shmbridge.Host("a", channels="many")',
    'shmbridge.connect("a").evaluate(5)',
    'shmbridge.TensorSpec("x", "f4", "shape")',
    'shmbridge.Host("a").no_such_method()',
]


def test_the_types_are_right_for_users(tmp_path):
    pytest.importorskip("mypy")
    good = tmp_path / "good.py"
    good.write_text(textwrap.dedent(PROGRAM))
    bad = tmp_path / "bad.py"
    bad.write_text("import shmbridge\n\n" + "\n".join(WRONG) + "\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*mypy, good], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*mypy, bad], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.count(" error: ") == len(WRONG), done.stdout

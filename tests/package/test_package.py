"""What importing shmbridge brings along, and that its types are right for its users."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
from support.processes import printed

import shmbridge


def test_importing_brings_none_of_the_extras_along(python):
    code = """
        import sys, shmbridge, shmbridge.rl
        extras = {"google", "onnxruntime", "onnx", "torch", "grpc", "click", "rich", "ml_dtypes",
            "flatbuffers", "ray", "gymnasium"}
        print(sorted(extras & {module.partition(".")[0] for module in sys.modules}))
    """
    assert python(code).end() == (0, "[]")


def test_importing_leaves_shm_and_signals_and_threads_alone(python, shm_files):
    code = """
        import os, signal, threading
        before = {s: signal.getsignal(s) for s in signal.Signals}, threading.active_count()
        import shmbridge
        print(before == ({s: signal.getsignal(s) for s in signal.Signals},
            threading.active_count()))
    """
    assert python(code).end() == (0, "True")


def test_the_version_is_the_c_librarys():
    from importlib.metadata import version

    assert shmbridge.__version__ == version("shmbridge")


def test_everything_public_has_a_docstring_and_is_there():
    assert dir(shmbridge) == sorted(shmbridge.__all__)
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


    def one(request: Request) -> int:
        return int(request["x"])


    def several(batch: Batch) -> dict[str, Any]:
        return {"x": np.ones(len(batch))}


    def serve() -> int:
        with Host("name", features=[TensorSpec("x", np.float32, (None,))], until_idle=1.5) as host:
            host.serve(model, max_batch=8)
            host.serve(one, record="decisions.tlog")
            host.serve(several, max_wait=1e-3, max_batch=8)
            host.serve(lambda request: int(request["features"].sum() < 8))
            for request in host:
                sent: bool = request.reply(model(request))
                request.reply(a=1, b="text")
            taken: Request | None = host.receive(timeout=1)
            if taken is not None:
                taken.fail(ValueError("no"))
            batch: Batch
            for batch in host.batches(max_size=4, max_wait=1e-3):
                batch.reply(batch["x"].sum(axis=1))
            return 1


    def ask(runner: Runner) -> float:
        try:
            return float(runner.evaluate({"x": np.zeros(3), "name": "f"}, dtype=np.float64))
        except (shmbridge.ModelError, shmbridge.HostGoneError) as error:
            print(error.status)
            return 0.0


    with shmbridge.connect("shm://name", deadline=0.5, wait="block") as runner:
        ask(runner)
"""
# What the pages show of libraries that are large, and what mypy must know of them.
DOCUMENTED = """
    from stable_baselines3.common.vec_env import VecNormalize
    import shmbridge
    from shmbridge.envs.sb3 import CompilerVecEnv
    from shmbridge.logs import TrainingLog

    for record in TrainingLog("decisions.tlog"):
        print(record.features)
    VecNormalize(CompilerVecEnv("unroll", 4, actions=5))
"""
LIBRARIES = {
    "stable_baselines3/common/vec_env.pyi": """
        class VecEnv: ...
        class VecNormalize(VecEnv):
            def __init__(self, venv: VecEnv) -> None: ...
    """
}
WRONG = [
    *('shmbridge.TensorSpec("x", "f4", "shape")', "shmbridge.Host(5)"),
    *(f'shmbridge.Host("a", {wrong})' for wrong in ('channels="many"', "chanels=3")),
    *(f'shmbridge.{name}("a", wait="never")' for name in ("Host", "connect")),
    *(f'shmbridge.Host("a").{wrong}' for wrong in ("no_such_method()", "serve(3)")),
    'shmbridge.Host("a").serve(lambda request: 1, max_bach=3)',
    *(f'shmbridge.connect("a", {wrong})' for wrong in ("time_out=3", 'default_advice="0"')),
    *(f'shmbridge.connect("a").evaluate({wrong})' for wrong in ("5", "{}, dtype=1.5")),
]


def test_the_types_are_right_for_users(tmp_path):
    pytest.importorskip("mypy")
    good = tmp_path / "good.py"
    good.write_text(textwrap.dedent(PROGRAM))
    documented = tmp_path / "documented.py"
    documented.write_text(textwrap.dedent(DOCUMENTED))
    for name, text in LIBRARIES.items():
        stub = tmp_path / "stubs" / name
        stub.parent.mkdir(parents=True)
        stub.write_text(textwrap.dedent(text))
        for folder in (stub.parent, stub.parent.parent):
            (folder / "__init__.pyi").touch()
    environment = {**os.environ, "MYPYPATH": str(tmp_path / "stubs")}
    bad = tmp_path / "bad.py"
    bad.write_text("import shmbridge\n\n" + "\n".join(WRONG) + "\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = printed([*mypy, good, documented], cwd=tmp_path, env=environment, timeout=None)
    assert done.returncode == 0, done.stdout
    done = printed([*mypy, bad], cwd=tmp_path, timeout=None)
    assert done.stdout.count(" error: ") == len(WRONG), done.stdout


def test_in_the_clone_the_import_says_what_to_do(tmp_path):
    """The source's folder hides the installed package, and has no library."""
    source = Path(__file__).parents[2] / "shmbridge"
    (tmp_path / "shmbridge").mkdir()
    for file in source.glob("*.py"):
        (tmp_path / "shmbridge" / file.name).write_text(file.read_text())
    done = printed([sys.executable, "-c", "import shmbridge"], cwd=tmp_path)
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ImportError: ") and "another folder" in said and "pip install ." in said

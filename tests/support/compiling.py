"""What `shmbridge compile` makes of a model, and what ONNX Runtime says of it."""

import shutil

import pytest
from click.testing import CliRunner

from shmbridge.cli import main

pytest.importorskip("onnx", reason="needs onnx: pip install 'shmbridge[compile]'")
pytest.importorskip("emx_onnx_cgen", reason="needs emx-onnx-cgen: pip install 'shmbridge[compile]'")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
if not shutil.which("cc"):
    pytest.skip("needs a C compiler", allow_module_level=True)

from support import onnx_models  # noqa: E402, F401


def compile(*words, code=0):
    """Runs the command: what it printed."""
    result = CliRunner().invoke(main, ["compile", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def expected(model, **features):
    return runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(
        None, features
    )

"""What `shmbridge compile` makes of a model, and what ONNX Runtime says of it."""

import contextlib
import functools
import io
import os
import shutil

import pytest
from click.testing import CliRunner

from shmbridge.cli import main

pytest.importorskip("onnx", reason="needs onnx: pip install 'shmbridge[compile]'")
pytest.importorskip("emx_onnx_cgen", reason="needs emx-onnx-cgen: pip install 'shmbridge[compile]'")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
if not shutil.which("cc"):
    pytest.skip("needs a C compiler", allow_module_level=True)

from emx_onnx_cgen import cli  # noqa: E402
from emx_onnx_cgen.codegen.c_emitter import CEmitter  # noqa: E402

from shmbridge._compile.toolchain import BuildDirectory, CompileError  # noqa: E402
from support import onnx_models  # noqa: E402, F401


@contextlib.contextmanager
def quickly():
    """Has the generator run in this process, where it loads its templates, a second each time, but
    once."""
    run, first = BuildDirectory.run, CEmitter(None)
    templates = functools.cache(first._load_templates)

    def load(emitter, testbench):
        # Templates see the variables of the environment that loaded them.
        first._env.globals.update(emitter._env.globals)
        emitter._env = first._env
        return templates(testbench)

    def here(job, *command, **options):
        if "emx_onnx_cgen" not in command:
            return run(job, *command, **options)
        before = os.getcwd()
        os.chdir(job.folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                if cli.main(list(map(str, command[3:]))):
                    raise CompileError(said.getvalue())
        finally:
            os.chdir(before)
        return said.getvalue()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BuildDirectory, "run", here)
        patch.setattr(CEmitter, "_load_templates", load)
        yield


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

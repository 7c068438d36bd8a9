"""The generator of C, quickened, and a model that is compiled once."""

import contextlib
import functools
import io

import pytest

from shmbridge._compile.toolchain import BuildDirectory, CompileError


@pytest.fixture(scope="module")
def quick():
    """Has the generator run in this process, where it loads its templates, a second each time, but
    once."""
    from emx_onnx_cgen import cli
    from emx_onnx_cgen.codegen.c_emitter import CEmitter

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
        if job.verbose:
            job.say(" ".join(map(str, command)))
        with (
            pytest.MonkeyPatch.context() as there,
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            there.chdir(job.folder)
            if cli.main(list(map(str, command[3:]))):
                raise CompileError(said.getvalue())
        return said.getvalue()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BuildDirectory, "run", here)
        patch.setattr(CEmitter, "_load_templates", load)
        yield


@pytest.fixture(scope="module")
def models(tmp_path_factory, quick):
    """A folder with perceptron.onnx and perceptron.so, compiled once."""
    from support import onnx_models
    from support.compiling import compile

    folder = tmp_path_factory.mktemp("models")
    said = compile(
        onnx_models.perceptron(folder / "perceptron.onnx"), "-o", folder / "perceptron.so"
    )
    assert (
        "checked: within tolerance: differs from ONNX Runtime by" in said
        or "checked: exact" in said
    )
    assert "--check-inputs" in said and "random inputs (x -" in said
    return folder

"""A combination whose model is compiled: an ONNX file's, by what `shmbridge compile` runs."""

import contextlib
import functools
import io
import os
import shutil
import tempfile
from pathlib import Path

from emx_onnx_cgen import cli
from emx_onnx_cgen.codegen.c_emitter import CEmitter
from onnx_stage import OnnxStage

from shmbridge._compile import onnx
from shmbridge._compile.toolchain import BuildDirectory, CompileError

load_templates = functools.cache(functools.partial(CEmitter._load_templates, CEmitter(None)))


class Quick(BuildDirectory):
    """Has the generator run in this process, where it loads its 169 templates, a second each time,
    but once."""

    def run(self, *command, **options):
        if "emx_onnx_cgen" not in command:
            return super().run(*command, **options)
        CEmitter._load_templates = lambda _, testbench: load_templates(testbench)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                if cli.main(list(map(str, command[3:]))):
                    raise CompileError(said.getvalue())
        finally:
            os.chdir(before)
        return said.getvalue()


class AotStage(OnnxStage):
    def write(self, model, path):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "model.onnx"
            source.write_bytes(model)
            job = Quick(source, Path(folder))
            shutil.copy(job.link(onnx.build(job)), path)

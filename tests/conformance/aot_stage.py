"""A combination whose model is compiled: an ONNX file's, by what `shmbridge compile` runs."""

import shutil
import tempfile
from pathlib import Path

from onnx_stage import OnnxStage
from support.compiling import quickly

from shmbridge._compile import onnx
from shmbridge._compile.toolchain import BuildDirectory


class AotStage(OnnxStage):
    def write(self, model, path):
        with tempfile.TemporaryDirectory() as folder, quickly():
            source = Path(folder) / "model.onnx"
            source.write_bytes(model)
            job = BuildDirectory(source, Path(folder))
            shutil.copy(job.link(onnx.build(job)), path)

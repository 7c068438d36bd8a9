"""Stock mlir-opt 22 that asks for tile sizes."""

import re
import shutil
from pathlib import Path

import pytest

CMAKE = Path("/usr/lib/llvm-22/lib/cmake/mlir")


@pytest.mark.slow  # MLIR's headers take a minute to compile
@pytest.mark.skipif(not CMAKE.exists(), reason="needs libmlir-22-dev")
@pytest.mark.skipif(not shutil.which("mlir-opt-22"), reason="needs mlir-22-tools")
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
def test_one_mlir_opt_tries_many_tile_sizes(run_example):
    pytest.importorskip("gymnasium")
    pytest.importorskip("onnx")
    pytest.importorskip("emx_onnx_cgen")
    printed = run_example("mlir")
    same, of = re.search(r"the same output for (\d+) of (\d+)", printed).groups()
    assert same == of

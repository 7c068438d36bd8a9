"""Stock gcc 12 that asks how often to unroll its loops."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def plugin_headers():
    """Are gcc-12's headers for plugins there?"""
    if not shutil.which("g++-12"):
        return False
    found = subprocess.run(["g++-12", "-print-file-name=plugin"], capture_output=True, text=True)
    return (Path(found.stdout.strip()) / "include" / "gcc-plugin.h").exists()


@pytest.mark.skipif(not plugin_headers(), reason="needs g++-12 and gcc-12-plugin-dev")
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_gcc_obeys_a_model_and_builds_without_one(run_example):
    pytest.importorskip("onnx")
    pytest.importorskip("emx_onnx_cgen")
    printed = run_example("gcc")
    always = re.search(r"always (\d), .* ([+-]\d+\.\d)%", printed)
    assert int(always[1]) > 1 and float(always[2]) < -5  # unrolling helps these loops
    for way in ("random search", "REINFORCE"):
        assert re.search(rf"{way} .*\[ *[+-]\d", printed)
    for line in ("as machine code in gcc", "with the plugin and no model"):
        same, of = re.search(rf"{line}.* for (\d+) of (\d+)", printed).groups()
        assert same == of

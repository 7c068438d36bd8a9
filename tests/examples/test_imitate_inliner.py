"""A small model that imitates LLVM's inliner decides the same in Python, as an ONNX file and as
machine code."""

import re
import shutil

import pytest


def test_imitation_of_the_inliner_decides_the_same_wherever_it_runs(run_example, request):
    for tool in ("clang-22", "llvm-config-22", "cmake"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}: apt-get install clang-22 llvm-22-dev cmake g++")
    long = request.config.getoption("--long")
    for package in ("onnx", "onnxruntime", "emx_onnx_cgen", *["torch", "onnxscript"] * long):
        pytest.importorskip(package)
    printed = run_example("imitate_inliner")
    assert "NOT" not in printed and printed.count("all objects") == 4
    assert printed.count("all decisions") == 3  # by the plug-in in Python, onnx:// and aot://
    right, guess = map(float, re.search(r"held out.*\n +([\d.]+)% .* ([\d.]+)%", printed).groups())
    assert right > guess

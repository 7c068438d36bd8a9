"""A policy learns from whole compilations where clang shall inline."""

import json
import shutil

import pytest


def test_inlining_for_size_learns_and_is_measured_on_programs_not_trained_on(
    run_example, examples, request
):
    if not shutil.which("clang-22"):
        pytest.skip("no clang-22: apt-get install clang-22 lld-22")
    for package in ("onnx", "emx_onnx_cgen"):
        pytest.importorskip(package)
    run_example("inline_for_size")
    folder = examples / "inline_for_size" / "results"
    folder /= "." if request.config.getoption("--long") else "quick"
    results = json.loads((folder / "results.json").read_text())
    assert results["different"] == 0  # it begins with LLVM's own decisions
    assert results["identical"]  # as machine code in clang, and in Python
    assert results["train"] > 0 and results["test"] > 0
    low, high = results["intervals"]["objects"]["learned"]
    assert -1 < low <= results["changes"]["objects"]["learned"][0] <= high < 1

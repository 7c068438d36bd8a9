"""A policy learns from whole compilations where clang shall inline."""

import json
import shutil

import pytest


def test_inlining_for_size_measures_every_policy_on_programs_not_trained_on(
    run_example, examples, request
):
    long = request.config.getoption("--long")
    for tool in ("clang-22", *["llvm-config-22", "cmake"] * long):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}: apt-get install clang-22 llvm-22-dev cmake g++")
    for package in ("onnx", *["onnxruntime", "emx_onnx_cgen"] * long):
        pytest.importorskip(package)
    run_example("inline_for_size")
    results = json.loads((examples / "inline_for_size/results/results.json").read_text())
    trained = results["bytes saved in training"]
    # They begin with LLVM's own way.
    assert trained["evolution 0"] >= 0 and trained["random 0"] >= 0
    for sizes in results["sizes"].values():
        assert sizes["always"] > sizes["-Oz"]
        assert sizes["imitation"] == pytest.approx(sizes["-Oz"], rel=0.02)
    assert all(results.get("same bytes by every URL", {}).values())

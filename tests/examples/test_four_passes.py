"""Learning which passes to run, against the best of all sequences."""

import json
import re
import shutil

import pytest

for program in ("opt-22", "clang-22", "llvm-config-22", "cmake"):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine", allow_module_level=True)


def test_what_was_learnt_runs_in_opt_and_stands_beside_the_optimum(run_example, examples, request):
    pytest.importorskip("gymnasium", reason="the trainer's environments are Gymnasium's")
    pytest.importorskip("onnx", reason="writes what was learnt")
    pytest.importorskip("onnxruntime", reason="runs it in opt")
    pytest.importorskip("emx_onnx_cgen", reason="compiles it")
    long = request.config.getoption("--long")
    if long:
        pytest.importorskip("stable_baselines3", reason="PPO and A2C are its")
    said = run_example("four_passes")
    results = json.loads((examples / "four_passes/results/results.json").read_text())
    for parts in results["parts"].values():
        assert all(part <= 1 for kind in parts.values() for part in kind)
    for scores in results["scores"].values():
        assert scores["optimum"] < scores["before"] and scores["loop"] >= scores["optimum"]
    deployed = re.findall(r"(\S+)\.bc: [\d ]+: \d+ -> \d+ instructions", said)
    assert len(deployed) == (12 if long else 3)
    if long:
        for method in ("loop", "PPO", "A2C"):
            trained = results["parts"][method]["trained"]
            assert sum(trained) / len(trained) >= 0.95

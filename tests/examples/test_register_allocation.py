"""examples/register_allocation: eviction and priority of an unmodified clang-22 as two agents."""

import json
import re
import shutil
import subprocess

import pytest


@pytest.mark.skipif(not shutil.which("clang-22"), reason="no clang-22")
def test_two_agents_allocate_registers_and_what_they_learnt_serves_a_build(run_example, examples):
    printed = run_example("register_allocation")
    folder = examples / "register_allocation"
    results = json.loads((folder / "results/results.json").read_text())
    assert re.search(r"^evolution +[+-]\d+\.\d%", printed, re.M)
    assert [row["search"] for row in results["rows"]][:2] == ["none", "random search"]
    start, best = results["rows"][0], results["rows"][-1]
    assert best["train"] >= start["train"], "the start is the first candidate"
    kernel, scores = next(iter(best["scores"].items()))
    command = ["clang-22", "-O2", "-S", f"kernels/{kernel}", "-o", "kernel.s"]
    run = ["shmbridge", "run", "--strict", "--llvm", "evict,priority", "--host", "policy:learnt"]
    subprocess.run([*run, "--", *command], cwd=folder, check=True)
    spills = re.findall(r"-byte (?:Folded )?(?:Spill|Reload)", (folder / "kernel.s").read_text())
    assert len(spills) == scores["count"]

"""examples/rllib: PPO learns, a machine is lost and comes back, and nothing is left. Runs with bash
tests/run --ray."""

import re
import shutil

import pytest

pytest.importorskip("ray", reason="Ray pins its Gymnasium: bash tests/run --ray")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_rllib(run_example, request):
    for tool in ("opt-22", "clang-22", "llvm-config-22", "cmake"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    printed = run_example("rllib", seconds=7200 if request.config.getoption("--long") else 600)
    assert re.search(r"^PPO\t1\t\d+", printed, re.MULTILINE)
    runners = [int(each) for each in re.findall(r"^ +\d+ +(\d) +\d+", printed, re.MULTILINE)]
    assert runners[0] == 2 and 1 in runners and runners[-1] == 2
    assert "left of it: 0 compilers, 0 bridges" in printed
    assert "remaining at the end: 0 compilers, 0 bridges; 0 compilers, 0 bridges\n" in printed

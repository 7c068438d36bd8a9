"""The program of docs/cluster.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()


def test_a_policy_is_evaluated_by_tasks_of_ray(tmp_path):
    pytest.importorskip("ray", reason="needs ray: bash tests/run --ray")
    (code,) = re.findall(r"```python file=evaluate.py[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "evaluate.py").write_text(code)
    command = [sys.executable, "evaluate.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert re.search(r"^8 modules, mean reward -?[\d.]+$", done.stdout, re.M), done.stderr

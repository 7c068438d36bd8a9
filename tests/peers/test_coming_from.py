"""docs/coming-from-ml-compiler-bridge.md: each script serves, and the compiler's asks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-ml-compiler-bridge.md"
THEIRS, OURS, COMPILER = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("model", [THEIRS, OURS], ids=["theirs", "ours"])
def test_the_pages_model_answers_the_pages_compiler(model, tmp_path):
    compiler = COMPILER
    if model is THEIRS:
        pytest.importorskip("compilerinterface")
        # Their reply tells no dtype.
        compiler = COMPILER.replace('{"x": 11}', '{"x": 11}, dtype="int32"')
    with subprocess.Popen(
        [sys.executable, "-c", model], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as serving:
        try:
            code = [sys.executable, "-c", compiler + "print(advice)"]
            ask = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, timeout=40)
        finally:
            serving.kill()
    assert ask.stdout == "12\n", ask.stderr

"""A heuristic that is a file, and its evaluator."""

import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "heuristic_as_a_file"


@pytest.fixture
def evaluator(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import evaluator

    monkeypatch.setattr(evaluator, "MEMORY", 300 << 20)
    yield evaluator
    del sys.modules["evaluator"]


ALWAYS = "def advise(request):\n    return (request['cost_estimate'] > -10000).astype(int)\n"
CANDIDATES = {
    "": (FOLDER / "first.py").read_text(),
    "time limit": ALWAYS.replace("return", "while True: pass\n    return"),
    "memory limit": ALWAYS.replace("return", "held = bytearray(1 << 30)\n    return"),
    "no such feature": ALWAYS.replace("return", "raise KeyError('no such feature')\n    return"),
    "was never closed": "def advise(request:\n",
}


@pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22")
@pytest.mark.parametrize("why", CANDIDATES)
def test_an_untrusted_candidate_has_a_score_or_a_reason_and_limits(
    evaluator, monkeypatch, tmp_path, why
):
    if why == "time limit":
        monkeypatch.setattr(evaluator, "SECONDS", 1.0)
    program = tmp_path / "candidate.py"
    program.write_text(CANDIDATES[why])
    found = evaluator.evaluate_stage1(str(program))
    assert found.metrics["compiled"] == (not why)
    if why:
        assert found.metrics["combined_score"] == evaluator.FAILED
        assert why in found.artifacts["failures"]
    else:
        assert -1 < found.metrics["combined_score"] < 1
        assert "tiny" in found.artifacts["worst_modules"]


@pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22")
def test_a_source_with_only_data_counts_as_unchanged(evaluator, monkeypatch, tmp_path):
    (tmp_path / "data.c").write_text("int x[] = {1, 2};\n")
    monkeypatch.setattr(evaluator, "SOURCES", [str(tmp_path / "data.c")])
    assert evaluator.evaluate(str(FOLDER / "first.py")).metrics["combined_score"] == 0

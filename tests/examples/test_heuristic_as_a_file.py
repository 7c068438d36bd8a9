"""A heuristic that is a file: edited between two compilations, by hand and by a search."""

import re
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "heuristic_as_a_file"


@pytest.fixture
def source(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import source

    yield source
    del sys.modules["source"]


@pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22")
def test_a_search_finds_a_heuristic_whose_file_does_the_same(run_example):
    printed = run_example("heuristic_as_a_file")
    made = re.findall(r"^ +(\d+) bytes", printed, re.MULTILINE)
    assert len(made) == 3  # by hand
    by_run, in_search = re.search(
        r"by `shmbridge run`: (\d+) bytes, in the search: (\d+)", printed
    ).groups()
    assert by_run == in_search
    assert "random search" in printed and "candidates a minute" in printed


def test_every_changed_text_is_a_policy(source):
    import random

    import numpy as np

    rng = random.Random(0)
    features = {name: np.arange(3)[:, None] for name in source.FEATURES}
    texts = [source.fresh(rng) for _ in range(8)]
    for _ in range(300):
        text = source.changed(rng.choice(texts), rng.choice(texts), rng)
        texts.append(text)
        advice = source.load(source.file_of(text, ""))(features)
        assert advice.shape == (3, 1) and set(advice.ravel()) <= {0, 1}, text
        assert len(text) < source.LENGTH + 80, text


@pytest.fixture
def evaluator(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import evaluator

    monkeypatch.setattr(evaluator, "SECONDS", 2.0)
    monkeypatch.setattr(evaluator, "MEMORY", 300 << 20)
    yield evaluator
    del sys.modules["evaluator"]


ALWAYS = "def advise(request):\n    return (request['cost_estimate'] > -10000).astype(int)\n"
CANDIDATES = {
    "": ALWAYS,
    "time limit": ALWAYS.replace("return", "while True: pass\n    return"),
    "memory limit": ALWAYS.replace("return", "held = bytearray(1 << 30)\n    return"),
    "no such feature": ALWAYS.replace("return", "raise KeyError('no such feature')\n    return"),
    "was never closed": "def advise(request:\n",
}


@pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22")
@pytest.mark.parametrize("why", CANDIDATES)
def test_an_untrusted_candidate_has_a_score_or_a_reason_and_limits(evaluator, tmp_path, why):
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

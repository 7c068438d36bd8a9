"""The pages say what docs/results/*.json say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page", ["docs/results.md", "docs/performance.md", "examples/regalloc/README.md"]
)
def test_the_page_has_the_tables_of_what_was_measured(page, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path, str(ROOT)])  # last: shmbridge is the installed one
    from bench.pages import results_page

    assert ROOT / page in [each.resolve() for each in results_page.PAGES]
    assert results_page.filled(ROOT / page, results_page.measured()) == (ROOT / page).read_text()

"""docs/results.md says what docs/results/*.json say."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import results_page

    return results_page


def test_the_page_has_the_tables_of_what_was_measured(results_page, monkeypatch, tmp_path):
    page = tmp_path / "results.md"
    shutil.copy(results_page.PAGE, page)
    monkeypatch.setattr(results_page, "PAGE", page)
    monkeypatch.setattr(results_page, "draw", lambda found: None)
    assert results_page.main() == 0
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text()

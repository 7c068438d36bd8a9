"""The pages say what docs/results/*.json say."""

import sys
from pathlib import Path

import reliability_page

ROOT = Path(__file__).parents[2]


def test_the_pages_have_the_tables_of_what_was_measured(monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path, str(ROOT)])  # last: shmbridge is the installed one
    from bench.pages import results_page

    for page in results_page.PAGES:
        assert results_page.filled(page, results_page.measured()) == page.read_text()


def test_the_page_has_the_tables_of_what_was_counted():
    text = reliability_page.PAGE.read_text()
    assert reliability_page.filled(text) == text

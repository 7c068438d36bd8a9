"""The pages say what docs/results/*.json say."""

import json
from pathlib import Path

import pytest

from shmbridge._llvm.plan import read

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/results.md", "docs/performance.md"])
def test_the_page_has_the_tables_of_what_was_measured(page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import results_page

    assert ROOT / page in [each.resolve() for each in results_page.PAGES]
    assert results_page.filled(ROOT / page, results_page.measured()) == (ROOT / page).read_text()


def test_the_stored_plans_add_up_to_the_table():
    results = ROOT / "docs" / "results"
    for name, found in json.loads((results / "tuned.json").read_text())["programs"].items():
        plans = [read(path) for path in (results / "plans" / name).rglob("*.plan")]
        assert len(plans) == found["sources"]
        assert sum(plan.questions for plan in plans) == found["decisions"]
        assert sum(plan.before for plan in plans) == found["search"]["before"]
        assert sum(plan.after for plan in plans) == found["search"]["after"]

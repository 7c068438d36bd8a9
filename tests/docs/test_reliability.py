"""docs/reliability.md says what docs/results/reliability.json says."""

import shutil

import reliability_page


def test_the_page_has_the_tables_of_what_was_counted(tmp_path):
    page = tmp_path / "reliability.md"
    shutil.copy(reliability_page.PAGE, page)
    reliability_page.main(page)
    assert page.read_text() == reliability_page.PAGE.read_text()

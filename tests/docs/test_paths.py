"""What the documentation says of the source is so: its paths exist, its layers are the tested
ones."""

import re
from pathlib import Path

import pytest
from test_c_layers import LAYERS
from test_layers import ROOMS

ROOT = Path(__file__).parents[2]
CORE = ROOT / "cdef" / "src"


def paths(page):
    """Words in backquotes that begin with a folder of the repository, or of the C core."""
    return set(
        re.findall(
            r"`((?:cdef|docs|schemas|shmbridge|tests)/[^\s`]+|(?:"
            + "|".join(LAYERS)
            + r")/\w+\.[ch])`",
            page.read_text(),
        )
    )


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_the_paths_that_a_page_names_exist(page):
    found = paths(ROOT / page)
    assert (
        found
        and {path for path in found if not (ROOT / path).exists() and not (CORE / path).exists()}
        == set()
    )


def test_the_drawings_of_the_layers_have_them_all_from_the_top_down():
    layers = (ROOT / "docs" / "design.md").read_text().partition("## Layers")[2]
    drawings = re.findall(r"```text\n(.*?)```", layers, re.DOTALL)[:2]
    found = [re.findall(r"^ (\w+) {2,}", drawing, re.MULTILINE) for drawing in drawings]
    assert found == [LAYERS[::-1], ROOMS[::-1]]

"""What the documentation says of the source is so: paths exist, layers are the tested ones."""

import re
from pathlib import Path

import pytest
from test_c_layers import LAYERS
from test_layers import ROOMS

ROOT = Path(__file__).parents[2]
CORE = ROOT / "cdef" / "src"


def paths(page):
    """Words in backquotes that begin with a folder of the repository, or of the C core."""
    of_the_core = rf"(?:{'|'.join(LAYERS)})/\w+\.[ch]"
    found = rf"`((?:cdef|docs|schemas|shmbridge|tests)/[^\s`]+|{of_the_core})`"
    return set(re.findall(found, page.read_text()))


def exists(path):
    """Also a test in a file: tests/bridge/test_names.py::test_a_name."""
    path, _, test = path.partition("::")
    if test:
        return bool(re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.M))
    return (ROOT / path).exists() or (CORE / path).exists()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/design.md"])
def test_the_paths_that_a_page_names_exist(page):
    found = paths(ROOT / page)
    assert found and {path for path in found if not exists(path)} == set()


@pytest.mark.parametrize(
    "page, title, begins, number",
    [
        ("SECURITY.md", "## Threat model", r"- \*\*", 5),
        ("docs/design.md", "## Invariants", r"\d\. ", 7),
    ],
)
def test_every_promise_names_tests_that_exist(page, title, begins, number):
    section = (ROOT / page).read_text().partition(title)[2].partition("\n## ")[0]
    promises = re.split(rf"^(?={begins})", section, flags=re.M)[1:]
    assert len(promises) == number
    for promise in promises:
        named = re.findall(r"`(tests/[^\s`]+)`", promise)
        assert named and all(map(exists, named)), promise


def test_the_drawings_of_the_layers_have_them_all_from_the_top_down():
    layers = (ROOT / "docs" / "design.md").read_text().partition("## Layers")[2]
    drawings = re.findall(r"```text\n(.*?)```", layers, re.DOTALL)[:2]
    found = [re.findall(r"^ (\w+) {2,}", drawing, re.MULTILINE) for drawing in drawings]
    assert found == [LAYERS[::-1], ROOMS[::-1]]

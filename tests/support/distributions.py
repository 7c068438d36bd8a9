"""Distributions that are among the examples."""

import re
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def installed_example(folder, where):
    """Puts the distribution of examples/FOLDER in the directory `where`, with the metadata that pip
    makes of its pyproject.toml."""
    (source,) = (EXAMPLES / folder).glob("*.py")
    project = (EXAMPLES / folder / "pyproject.toml").read_text()
    (where / source.name).write_text(source.read_text())
    info = where / f"{source.stem}-0.1.0.dist-info"
    info.mkdir()
    name, entry = re.search(r'\[project\.entry-points\."(.*)"\]\n(.*)\n', project).groups()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {source.stem}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{name}]\n{entry.replace(chr(34), '')}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(where)
        yield where

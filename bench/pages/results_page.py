"""Writes the tables and pictures of docs/results.md, docs/performance.md and examples/regalloc from
the output of results.py:

python bench results_page

The pictures need matplotlib. For a figure that was not measured, the page names the command.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from bench.pages import compilers_tables as compilers
from bench.pages import transport_tables as transport
from bench.pages.pictures import FOLDER, PICTURES, draw
from bench.pages.results import RESULTS
from bench.pages.tables import Found, dated
from bench.program import write

PAGES = [RESULTS.parent / f"{name}.md" for name in ("results", "performance")]
PAGES.append(RESULTS.parents[1] / "examples/regalloc/README.md")
TABLES: dict[str, Callable[[Found], list[str]]] = {
    "inline": compilers.inline,
    "phases": compilers.urls,
    "allocation": compilers.urls,
    "jobs": compilers.urls,
    "threads": compilers.urls,
    "integration": compilers.integration,
    "training": compilers.training,
    "sweep": dated(transport.sweep),
    "tuned": compilers.tuned,
    "learned": compilers.learned,
    "regalloc": compilers.regalloc,
    "compilation": transport.compilation,
    "workers": dated(transport.workers),
    "scale": dated(transport.scale),
    "peers": dated(transport.peers),
}


def report(name: str, found: Found, file: Path | None) -> None:
    """Prints the table that docs/results.md has under that name, and writes the JSON."""
    print("", *TABLES[name](found), sep="\n")
    write(file, found)


def section(name: str, found: dict[str, Found]) -> list[str]:
    """The lines between a figure's comments."""
    if name not in found:
        return [f"Not measured yet: `python bench results --only {name}`.", ""]
    lines = [*TABLES[name](found[name]), ""]
    if name in PICTURES and (FOLDER / f"{name}.svg").exists():
        lines = [f"![{PICTURES[name][1]}](pictures/{name}.svg)", "", *lines]
    return lines


def filled(page: Path, found: dict[str, Found]) -> str:
    """The page with the lines between its comments replaced."""
    text = page.read_text()
    for name in TABLES:
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if begin in text:
            before, rest = text.split(begin)
            lines = "\n".join(section(name, found))
            text = f"{before}{begin}\n{lines}{end}{rest.split(end)[1]}"
    return text


def measured() -> dict[str, Found]:
    """The figures of results.py; other files are counts, for docs/reliability.md."""
    found = {file.stem: json.loads(file.read_text()) for file in RESULTS.glob("*.json")}
    return {name: figure for name, figure in found.items() if "machine" in figure}


def main() -> int:
    found = measured()
    draw(found)
    for page in PAGES:
        page.write_text(filled(page, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the README and the documentation tell a reader to type works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import page as pages
import pytest
from support.processes import free_port

ROOT = Path(__file__).parents[2]
# Their commands begin where they stand. A folder `build` has other people's.
EXAMPLES = sorted(p for p in (ROOT / "examples").rglob("README.md") if "build" not in p.parts)
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *EXAMPLES]
WITH_BLOCKS = [page for page in PAGES if any(block.runs for block in pages.blocks(page))]
SECONDS = 120  # of a page, on a busy machine


def run(page, folder):
    """Types a page's blocks: (exit status, what was printed to stderr)."""
    found = pages.blocks(page)
    here = re.findall(r"(?:127\.0\.0\.1|localhost):(5\d{4})", page.read_text())
    ports = {port: str(free_port()) for port in here}  # somebody else may have the page's
    for block in found:
        block.text = re.sub(r"\b5\d{4}\b", lambda match: ports.get(match[0], match[0]), block.text)
    text = pages.script(found, folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHMBRIDGE_")}
    env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env["CLONE"] = str(ROOT)
    if page in EXAMPLES:
        shutil.copytree(page.parent, folder, dirs_exist_ok=True)
    typed = ["timeout", "-k10", str(SECONDS), "bash", "-c", text]
    done = subprocess.run(
        typed, cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    return done.returncode, done.stderr, pages.prints(found, folder)


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_the_file_that_a_block_is(page):
    lines = page.read_text().splitlines()
    for block in pages.blocks(page):
        prose = pages.BLOCK.sub("", "\n".join([*lines[: block.line - 1], ""]))
        assert (block.word("file") or "") in prose, f"{page}:{block.line}"


@pytest.mark.usefixtures("no_bridges")
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_and_print_what_it_says(page, tmp_path):
    status, said, wrong = run(page, tmp_path)
    assert (status, wrong) == (0, []), said

"""How long the sentences of the pages are: `python tests/docs/language.py [PAGE]...` prints, for
each page, the median number of words of a sentence, and the share of sentences below eight words.
"""

import re
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
NO_PROSE = re.compile(
    r"^ *```.*?^ *```|^ *\|.*?$|^#.*?$|<!--.*?-->|^</?\w[^>]*>$|!\[[^]]*\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)
TESTS = re.compile(r"\((?:`tests/[^`]+`[,\s]*)+\)")
LABEL = re.compile(r"\*\*([^*]+?)[.?]?\*\*[.?]?")  # begins the sentence that follows
MARKS = re.compile(r"`[^`]+`|\]\([^)]*\)|[*\[]")
END = re.compile(r"[.!?][)\"]?\s+(?=[\"(]?[A-Z0-9])|\n\s*\n|\n *(?:[-*]|\d+\.) ")
SHORT = 8


def lengths(text):
    """The words of each sentence; code is one word. Lone terms and links are no sentences."""
    prose = LABEL.sub(r"\1", TESTS.sub("", NO_PROSE.sub("\n\n", text)))
    prose = MARKS.sub(lambda mark: "Code" if mark[0][0] == "`" else "", prose)
    return [n for part in END.split(f"\n{prose}\n") if (n := len(part.split())) > 2]


def figures(path):
    """(median words of a sentence, share below eight words, sentences)"""
    found = lengths(path.read_text(encoding="utf-8")) or [0]
    return median(found), sum(n < SHORT for n in found) / len(found), len(found)


if __name__ == "__main__":
    pages = [Path(name) for name in sys.argv[1:]] or [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("**/README.md")),
        *[ROOT / "bench/README.md", ROOT / "tests/conformance/README.md"],
    ]
    for page in pages:
        if "build" not in page.parts:
            print("{:5g} words {:4.0%} short {:4} sentences".format(*figures(page)), page)

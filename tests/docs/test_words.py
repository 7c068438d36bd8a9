"""The texts that users read are plain English."""

import ast
import re
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
# A space matches any white space, and the " * " of a C comment.
REJECTED = """
by turns|anew|in kind|be had|whoever|whomever|shall|looked into|nobody's|for want of|in the midst of
who waits|who acts|who advises|nobody advises|nobody asks|as everybody|not said again
tells? the rest|tells? itself|tells? what|tells? how|of its own making|of their own making
where it lies|where they lie|as it lies|as they lie|costs? nothing but|what a call came to
are none that|stands? behind|comes? of|that is there|which is there
""".replace("\n", "|").strip("|")
SPACE = r"\s+(?:[*]\s+)?"
PHRASE = re.compile(rf"(?<![\w-])(?:{REJECTED.replace(' ', SPACE)})(?![\w-])", re.IGNORECASE)

PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "bench/README.md",
    *(p for p in ROOT.glob("examples/**/README.md") if "build" not in p.parts),
]
CODE = ("cdef/src", "cdef/extension", "cdef/launcher", "cdef/preload", "shmbridge")
FILES = sorted(
    [
        *PAGES,
        *(ROOT / "cdef/include").rglob("*.h*"),
        *(p for folder in CODE for p in (ROOT / folder).rglob("*.c")),
        *(ROOT / "shmbridge").rglob("*.py"),
    ]
)


def python_strings(source):
    """(line, text) of each docstring and string, and of the constant parts of f-strings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def c_strings(source):
    """(line, text) of each literal, or sequence of literals."""
    for match in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
        yield source.count("\n", 0, match.start()) + 1, re.sub(r'"\s*"', "", match[0])


def texts(path):
    """(line, text) of each text of a file that users read."""
    source = path.read_text()
    if path.suffix == ".py":
        return list(python_strings(source))
    return list(c_strings(source)) if path.suffix == ".c" else [(1, source)]


def rejected(path):
    """LINE: PHRASE for each rejected phrase of a file."""
    for line, text in texts(path):
        for match in PHRASE.finditer(text):
            at = line + text.count("\n", 0, match.start())
            phrase = " ".join(word for word in match[0].split() if word != "*")
            yield f"{at}: {phrase}"


# ---- How long the sentences are ----

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


def test_no_phrase_is_rejected():
    assert [f"{p.relative_to(ROOT)}:{found}" for p in FILES for found in rejected(p)] == []


def test_no_page_is_a_list_of_telegrams():
    found = {str(p.relative_to(ROOT)): figures(p) for p in PAGES}
    assert [
        page for page, (_, short, count) in found.items() if count > 20 and short > 0.35
    ] == [], found


if __name__ == "__main__":  # the median number of words of a page's sentences, and the short ones
    for page in sorted(PAGES):
        print("{:5g} words {:4.0%} short {:4} sentences".format(*figures(page)), page)

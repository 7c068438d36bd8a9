"""The public headers are what editors and documentation tools read: every declaration has a comment
above it."""

import re
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[1] / "cdef" / "include"
HEADERS = [INCLUDE / "shmbridge.h", *sorted(INCLUDE.glob("shmbridge/*.h"))]
# The reference leaves out what has no comment. The first part of the version speaks for all three.
NEEDS_NONE = re.compile(
    r"#define SHMB(RIDGE_|_POINTER|_VERSION_(MINOR|PATCH))|[}#](?!define)|extern \"C\""
)


def bare(text):
    """The first lines of the declarations and members that follow no comment."""
    found, before, open_declaration = [], "", False
    text = re.sub(r"^(static inline [^;{]*) \{.*?^\}", r"\1;", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(
        r"/\*\*.*?\*/", "//", re.sub(r"/\* .*?\*/", "", text, flags=re.DOTALL), flags=re.DOTALL
    )
    for line in filter(None, map(str.strip, text.splitlines())):
        if not open_declaration and line != "//" and before != "//" and not NEEDS_NONE.match(line):
            found.append(line)
        open_declaration = (
            line != "//"
            and line[0] != "#"
            and line[-1] not in ";{}"
            and not re.fullmatch(r"\w+ = \d+,?", line)
        )
        before = line
    return found


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_every_declaration_has_a_comment_above_it(header):
    assert bare(header.read_text()) == []


def test_shmbridge_h_does_not_include_the_other_headers():
    assert re.findall(r'#include "(.*)"', HEADERS[0].read_text()) == []
    for header in HEADERS[1:]:
        assert re.findall(r"#include (.*)", header.read_text()) == ['"shmbridge.h"']


def test_no_struct_has_members_of_the_librarys_own():
    members = {
        name
        for header in HEADERS
        for name in re.findall(
            r"^    [^/*(\n]*?(\w+)(?:\[\w+\])?;", header.read_text(), re.MULTILINE
        )
    }
    assert "reward" in members
    assert members.isdisjoint({"unsaid", "learner", "why"})

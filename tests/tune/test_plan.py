"""Plans: any plan is read as it was written, and any other bytes are an error with a line."""

import os
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmbridge._llvm.plan import Decision, Plan, Site, Sites, below, find, read
from shmbridge.errors import InvalidError

printable = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
texts = st.text(printable).map(str.strip)  # str.isprintable
numbers = st.floats(allow_nan=False, allow_infinity=False)
sites = st.builds(Site, st.integers(0, 2**64 - 1), st.integers(1, 999_999_999))
plans = st.builds(
    Plan,
    compiler=texts,
    source=texts,
    sha256=texts,
    command=texts,
    score=texts,
    before=numbers,
    after=numbers,
    questions=st.integers(0, 2**40),
    decisions=st.dictionaries(sites, st.builds(Decision, st.integers(0, 1), texts), max_size=5),
)


@contextmanager
def plan_file(data=b""):
    """The path of an unnamed file."""
    file = os.memfd_create("plan")
    try:
        os.write(file, data)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def parse(data):
    """The plan in these bytes; errors call it x.plan."""
    with plan_file(data) as path:
        try:
            return read(Path(path))
        except InvalidError as error:
            raise InvalidError(str(error).replace(path, "x.plan")) from None


@settings(max_examples=40)
@given(plans)
def test_a_plan_is_read_as_it_was_written(plan):
    again = parse(plan.text().encode())
    assert again == plan and list(again.decisions) == list(plan.decisions)


@settings(max_examples=40)
@given(st.text(), st.text())
def test_control_characters_and_lone_surrogates_stay_in_their_line(command, comment):
    decisions = {Site(1, 1): Decision(0, comment)}
    plan = Plan("c", "s.c", "0", command, "text", 1, 1, 1, decisions)
    assert len(parse(plan.text().encode()).decisions) == 1


@given(st.binary() | st.text().map(str.encode))
def test_other_bytes_are_an_error_that_names_the_file(data):
    with pytest.raises(InvalidError, match=r"^x[.]plan.*expected "):
        parse(data)


@settings(max_examples=60)
@given(plans, st.data())
def test_a_changed_plan_is_a_plan_or_an_error_with_its_line(plan, data):
    lines = plan.text().encode().split(b"\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at : at + data.draw(st.integers(0, 2))] = data.draw(st.lists(st.binary(), max_size=2))
    try:
        parse(b"\n".join(lines))
    except InvalidError as error:
        assert str(error).startswith("x.plan: expected a plan in UTF-8") or re.match(
            r"x.plan:(\d+| expected each question once| expected numbers)", str(error)
        )


def text_of(**changes):
    values = {"before": 2, "after": 1, "questions": 3, "decisions": {}} | changes
    texts = {name: "x" for name in ("compiler", "source", "sha256", "command", "score")}
    return Plan(**texts | values).text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("plan 1", "plan 2", 'x.plan:1: expected "shmbridge plan 1"'),
        ("score: x\n", "", 'x.plan:6: expected "score: ..."'),
        ("before: 2", "before: two", "x.plan: expected numbers in lines 7 to 9"),
        ("questions: 3", "questions: inf", "x.plan: expected numbers in lines 7 to 9"),
        ("1 0", "1 2", 'x.plan:12: expected "inline HASH OCCURRENCE 0" or 1'),
        ("1 0", f"1 0\ninline {7:016x} 1 1", "x.plan: expected each question once"),
    ],
)
def test_an_error_names_the_line_and_what_was_expected(old, new, said):
    text = text_of(decisions={Site(7, 1): Decision(0)})
    assert old in text
    with pytest.raises(InvalidError) as error:
        parse(text.replace(old, new).encode())
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("line", ["{} 1 0", "{} 999999999 1  # \u20ac"])
def test_good_decisions(line):
    line = line.format("inline 0123456789abcdef")
    assert len(parse(f"{text_of()}{line}\n".encode()).decisions) == 1


@pytest.mark.parametrize(
    "line",
    [
        "inline 0123456789abcde 1 0",
        "inline 0123456789ABCDEF 1 0",
        "inline 0123456789abcdef0 1 0",
        *("inline 0123456789abcdef" + rest for rest in (" 0 0", " 01 0", " 1000000000 0")),
        *("inline 0123456789abcdef" + rest for rest in (" 1 2", " 1 01", " 1 0 # one space")),
        *("inline 0123456789abcdef" + rest for rest in (" 1 0\r", " 1 0  # \0")),
        " inline 0123456789abcdef 1 0",
        "evict 0123456789abcdef 1 0",
    ],
)
def test_bad_decisions_are_refused_with_their_line(line):
    with pytest.raises(InvalidError, match=r'^x.plan:12: expected "inline HASH|UTF-8'):
        parse(f"{text_of()}{line}\n".encode())


def test_sites_with_the_same_features_are_counted():
    asked = Sites()
    first, other, second = (asked.next(values) for values in ([1, -2], [-2, 1], [1, -2]))
    assert first.hash == second.hash != other.hash
    assert (first.n, second.n, other.n) == (1, 2, 1)


def test_a_source_is_named_below_the_folder_of_the_build(tmp_path):
    assert below(tmp_path, "src/a.c") == below(tmp_path, tmp_path / "src/a.c") == "src/a.c"
    assert below(tmp_path / "build", "../src/a.c") == "src/a.c"


def test_the_plan_of_a_source_is_the_one_with_the_longest_common_end(tmp_path):
    folder = tmp_path / "plans" / "deep"
    folder.mkdir(parents=True)
    for name, source in ("1", "a.c"), ("2", "lib/a.c"), ("3", "b.c"):
        (folder / f"{name}.plan").write_text(text_of(source=source))
    (folder / "notes.txt").write_text("no plan")

    def found(source):
        path = find([tmp_path / "plans"], tmp_path / source)
        return path and path.name

    assert found("lib/a.c") == "2.plan" and found("x/a.c") == "1.plan"
    assert found("xb.c") is None
    assert find([folder / "3.plan", folder / "1.plan"], tmp_path / "b.c") == folder / "3.plan"
    (folder / "4.plan").write_text(text_of(source="b.c"))
    with pytest.raises(InvalidError, match=r"expected one plan, found .*3[.]plan and .*4[.]plan"):
        found("b.c")


def test_a_plan_is_written_whole(tmp_path):
    plan = Plan("c", "s.c", "0", "cc", "text", 1.5, 1, 1, {Site(1, 2): Decision(1, "why")})
    plan.write(tmp_path / "s.plan")
    assert read(tmp_path / "s.plan") == plan
    assert [path.name for path in tmp_path.iterdir()] == ["s.plan"]

"""shmbridge tune --export: plain clang makes the same code, or the export says that it cannot."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.cli import run

from shmbridge._llvm.plan import read
from shmbridge.errors import InvalidError
from shmbridge.training._remarks import LINES, REPLAY, Question, places
from shmbridge.training.scores import text_bytes

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22"),
]
SMALL = Path(__file__).with_name("small.c")
# Both calls of `big` are at one place, and only one of them should be inlined.
MACRO = """
void report(int);
static int big(int x) { report(x); report(x + 1); return x * 3; }
#define TWICE(x) big(x) + big((x) + 1)
int f(int x) { return TWICE(x); }
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A folder with small.c and its plans."""
    folder = tmp_path_factory.mktemp("tuned")
    shutil.copy(SMALL, folder)
    command = ("clang-22", "-Oz", "-c", "small.c")
    done = run("tune", "--export", "--results", "r", "-o", "small.plan", "--", *command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def compiled(folder, *flags):
    words = ["clang-22", "-Oz", "-c", "small.c", "-o", "small.o", *flags]
    subprocess.run(words, cwd=folder, check=True)
    return text_bytes(folder / "small.o")


def test_plain_clang_makes_the_same_code(tuned):
    exported = compiled(tuned, LINES, "-mllvm", f"{REPLAY}small.replay")
    done = run("run", "--plan", "small.plan", "--", "clang-22", "-Oz", "-c", "small.c", cwd=tuned)
    assert done.returncode == 0
    assert exported == text_bytes(tuned / "small.o") != compiled(tuned)
    plan = read(tuned / "small.plan")
    assert len((tuned / "small.replay").read_text().splitlines()) == len(plan.decisions)


def test_what_plain_clang_cannot_tell_apart_is_refused(tmp_path):
    (tmp_path / "small.c").write_text(MACRO)
    one_call = 'n=$(objdump -d "$0" | grep -c "call.*<big>"); test "$n" = 1; echo $?'
    command = ("clang-22", "-O2", "-c", "small.c")
    options = ("--score", f"sh -c '{one_call}' {{output}}", "--export", "--results", "r")
    done = run("tune", *options, "-o", "s.plan", "--", *command, cwd=tmp_path)
    assert read(tmp_path / "s.plan").after == 0, done.stderr
    assert done.returncode == 1 and "plain clang does not make the same code" in done.stderr
    assert not (tmp_path / "s.replay").exists()


def test_inlined_calls_inherit_the_place_of_the_call():
    asked = [
        Question("g", "h", 5, 9, False, False),
        Question("f", "g", 12, 3, False, True),
        Question("f", "g", 13, 4, False, True),
        Question("f", "h", 5, 9, False, True),
        Question("f", "h", 5, 9, False, False),
    ]
    texts = [place.text for place in places(asked, {"g": 4, "f": 10})]
    assert texts == ["g:1:9", "f:2:3", "f:3:4", "g:1:9 @ f:2:3", "g:1:9 @ f:3:4"]


def test_a_line_before_its_function_wraps_as_in_llvm():
    (place,) = places([Question("f", "g", 3, 1, False, True)], {"f": 4})
    assert place.text == "f:4294967295:1"


def test_a_function_without_debug_information_is_an_error():
    with pytest.raises(InvalidError, match="expected f among"):
        list(places([Question("f", "g", 3, 1, False, True)], {}))

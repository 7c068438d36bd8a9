"""shmbridge tune --export: plain clang makes the same code, or the export says that it cannot."""

import re
import shutil
import subprocess

import pytest
from support.cli import run

from shmbridge._llvm.plan import read
from shmbridge._tune import remarks
from shmbridge._tune.remarks import LINES, REPLAY, Call, Functions, Remark, Source, source_of
from shmbridge.training.scores import text_bytes

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22"),
]
# Both calls of `big` are at one place, and only one of them should be inlined.
MACRO = """
void report(int);
static int big(int x) { report(x); report(x + 1); return x * 3; }
#define TWICE(x) big(x) + big((x) + 1)
int f(int x) { return TWICE(x); }
"""


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


MIX, TWICE = Call("mix", 5, 9), Call("twice", 12, 3)


def asked(caller, call, inlined):
    return Remark(caller, call, inlined, False, "")


def test_inlined_calls_inherit_the_place_of_the_call():
    again = TWICE._replace(line=13)
    source = Source({"twice": 4, "f": 10}, {"twice": [MIX], "f": [TWICE, again]})
    functions = Functions(source)
    assert functions.places(asked("twice", MIX, False)) == ["twice:1:9"]
    assert functions.places(asked("f", TWICE, True)) == ["f:2:3"]
    assert functions.places(asked("f", again, True)) == ["f:3:3"]
    both = ["twice:1:9 @ f:2:3", "twice:1:9 @ f:3:3"]
    assert functions.places(asked("f", MIX, True)) == both
    assert functions.places(asked("f", MIX, False)) == both[::-1]
    assert functions.places(asked("g", MIX, False)) == []


def test_a_call_that_llvm_leaves_alone_without_asking_is_no_decision():
    text = (
        "Pass: inline-ml\nName: ForceStop\nDebugLoc: { File: small.c, Line: 17, Column: 20 }\n"
        "Function: table\nArgs:\n  - String: 'Won''t attempt inlining: module size grew.'\n"
    )
    assert not list(remarks.remarks_of(text))


def test_a_line_before_its_function_wraps_as_in_llvm():
    source = Source({"f": 14}, {"f": [TWICE]})
    assert Functions(source).places(asked("f", TWICE, False)) == ["f:4294967294:3"]


def test_functions_and_calls_are_read_from_assembly(tuned):
    words = ["clang-22", "-c", "small.c", LINES, "-S", "-emit-llvm", "-o", "-"]
    ir = subprocess.run(words, cwd=tuned, check=True, capture_output=True, text=True).stdout
    source = source_of(ir)
    assert source.first_lines["twice"] == 10
    assert source.calls["twice"] == [Call("mix", 10, 34), Call("mix", 10, 50)]


def test_the_plan_names_the_call_of_each_decision(tuned):
    comments = [each.comment for each in read(tuned / "small.plan").decisions.values()]
    assert comments and all(re.match(r"\w+ in \w+, line \d+:\d+; question", c) for c in comments)

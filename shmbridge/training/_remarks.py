"""A plan as a file that plain clang reads: `-cgscc-inline-replay`, with `-gline-tables-only`.

That file knows a call site by its callee and its place: the function, line and column of the call,
and of each call through which it was inlined. LLVM's optimisation remarks say of each question the
caller, the callee and the innermost line and column; the rest follows from what was inlined before.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from shmbridge._llvm.plan import DEFAULT, Plan
from shmbridge.errors import InvalidError
from shmbridge.training._clang import Compiler
from shmbridge.training._corpus import Module
from shmbridge.training.scores import text_bytes

LINES = "-gline-tables-only"
REPLAY = "-cgscc-inline-replay="
QUESTION = re.compile(
    r"Pass: +inline-ml\n.*\nDebugLoc: +\{ File: .*, Line: (\d+), Column: (\d+) \}\n"
    r"Function: +(\S+)\nArgs:\n +- Callee: +(\S+)\n((?: .*\n)*)"
)
FUNCTION = re.compile(r'DISubprogram\(name: "([^"]*)",(?: linkageName: "([^"]*)",)?.*? line: (\d+)')


class Question(NamedTuple):
    """One of the inliner's questions, as its remark describes it."""

    caller: str
    callee: str
    line: int
    column: int
    default: bool
    inlined: bool


class Place(NamedTuple):
    """Where a question's call is: "f:2:10 @ g:1:3", with lines from the functions' first."""

    question: Question
    text: str


def questions(remarks: str) -> Iterator[Question]:
    """The questions in LLVM's remarks, in their order."""
    for line, column, caller, callee, rest in QUESTION.findall(remarks):
        said = dict(re.findall(r"- (\w+): +'?(\w+)'?\n", rest))
        default, inlined = said.get(DEFAULT) == "1", said.get("ShouldInline") == "true"
        caller, callee = caller.strip("'\""), callee.strip("'\"")
        yield Question(caller, callee, int(line), int(column), default, inlined)


def places(asked: Iterable[Question], first_lines: Mapping[str, int]) -> Iterator[Place]:
    """The place of each question. first_lines: of each function."""
    # The calls that each function has got from what it inlined, and its own that stayed; in the
    # order in which LLVM asks about them.
    inherited = defaultdict[str, list[Place]](list)
    stayed = defaultdict[str, list[Place]](list)
    for each in asked:
        came = inherited[each.caller]
        same = [p for p in came if p.question[1:4] == each[1:4]]
        if same:
            came.remove(same[0])
            text = same[0].text
        elif each.caller in first_lines:
            offset = (each.line - first_lines[each.caller]) % (1 << 32)
            text = f"{each.caller}:{offset}:{each.column}"
        else:
            raise InvalidError(f"expected {each.caller} among the debug information's functions")
        yield Place(each, text)
        if each.inlined:
            for inner in stayed[each.callee]:
                came.append(Place(inner.question, f"{inner.text} @ {text}"))
        else:
            stayed[each.caller].append(Place(each, text))


def replay_line(place: Place) -> str:
    """A decision as LLVM reads it."""
    callee, caller = place.question.callee, place.question.caller
    how = "inlined into" if place.question.inlined else "will not be inlined into"
    return f"remark: '{callee}' {how} '{caller}' at callsite {place.text};\n"


def reversals(compiler: Compiler, module: Module, path: Path, plan: Plan) -> list[Place]:
    """Where the decisions are that a plan reverses, in the plan's order. Errors: InvalidError (the
    remarks or the debug information do not say it), ShmbridgeError."""
    with tempfile.TemporaryDirectory() as name:
        remarks, ir, output = (Path(name, each) for each in ("remarks", "ir", "output"))
        kept = [f"-foptimization-record-file={remarks}", "-foptimization-record-passes=inline-ml"]
        compiler.run(["-c", LINES, *kept, "-o", str(output)], module, path)
        emit = ["-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes"]
        compiler.run([LINES, *emit, "-o", str(ir)], module)
        functions = FUNCTION.findall(ir.read_text(errors="replace"))
        asked = list(questions(remarks.read_text(errors="replace")))
    first_lines = {linked or name: int(line) for name, linked, line in functions}
    found = [p for p in places(asked, first_lines) if p.question.inlined != p.question.default]
    if len(found) != len(plan.decisions):
        raise InvalidError(
            f"{path}: expected remarks on {len(plan.decisions)} changes, found {len(found)}"
        )
    return found


def export(compiler: Compiler, module: Module, path: Path, decided: Iterable[Place]) -> str:
    """A plan's decisions as plain clang reads them, after a comparison of its code. Errors:
    InvalidError (plain clang cannot make these decisions), ShmbridgeError."""
    text = "".join(map(replay_line, decided))
    with tempfile.TemporaryDirectory() as name:
        wanted, found, replay = (Path(name, each) for each in ("wanted", "found", "replay"))
        replay.write_text(text)
        compiler.run(["-c", "-o", str(wanted)], module, path)
        replays = [LINES, "-mllvm", f"{REPLAY}{replay}"]
        compiler.run(["-c", *replays, "-o", str(found)], module)
        if text_bytes(found) != text_bytes(wanted):
            raise InvalidError(
                f"{path}: plain clang does not make the same code with the plan's decisions, for "
                "example because two of them are at one place: use shmbridge run --plan"
            )
    return text

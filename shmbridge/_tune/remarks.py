"""A plan as a file that plain clang reads: `-cgscc-inline-replay`, with `-gline-tables-only`.

That file knows a call by its callee and its place: "f:2:10 @ g:1:3" is the call in line 2 of f,
column 10, after f was inlined into g. LLVM's remarks name the place of each call that was inlined.
So the plan's changes are added one by one, each where the remarks begin to differ from those of the
compiler with the plan. Only for a call that plain clang does not inline, its place must be tried:
the source's calls, and what was inlined before, show where it can be.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shmbridge._llvm.plan import DEFAULT
from shmbridge._tune.clang import Compiler
from shmbridge.errors import InvalidError
from shmbridge.training import Module
from shmbridge.training.scores import text_bytes

LINES = "-gline-tables-only"
REPLAY = "-cgscc-inline-replay="
# What LLVM inlined or asked about. Groups: pass, name, line, column, caller, the rest.
REMARK = re.compile(
    r"Pass: +(inline|inline-ml)\nName: +(\w+)\n"
    r"DebugLoc: +\{ File: .*, Line: (\d+), Column: (\d+) \}\n"
    r"Function: +(\S+)\nArgs:\n((?: .*\n)*)"
)
VALUE = re.compile(r"^  - (\w+): +(.*)$", re.MULTILINE)
# In LLVM's assembly. Groups: a function's name, first line, or body; a call's callee and location;
# a location's line and column.
SUBPROGRAM = re.compile(
    r'DISubprogram\(name: "([^"]*)",(?: linkageName: "([^"]*)",)?.*? line: (\d+)'
)
DEFINITION = re.compile(r'^define [^\n]*?@"?([^"(\n]+)"?\((.*?)^\}', re.MULTILINE | re.DOTALL)
CALL = re.compile(r'^.*?\bcall [^\n]*?@"?([^"(\n]+)"?\([^\n]*!dbg !(\d+)', re.MULTILINE)
LOCATION = re.compile(
    r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+), column: (\d+)", re.MULTILINE
)


class Call(NamedTuple):
    """A call in a source, by its callee and where it is."""

    callee: str
    line: int
    column: int


class Source(NamedTuple):
    """What the assembly before any optimisation says: each function's first line and calls."""

    first_lines: Mapping[str, int]
    calls: Mapping[str, Sequence[Call]]


def source_of(ir: str) -> Source:
    """The functions in LLVM's assembly with line numbers."""
    lines = {linked or name: int(line) for name, linked, line in SUBPROGRAM.findall(ir)}
    locations = {number: (int(line), int(column)) for number, line, column in LOCATION.findall(ir)}
    calls = {
        name: [Call(to, *locations[at]) for to, at in CALL.findall(body) if at in locations]
        for name, body in DEFINITION.findall(ir)
    }
    return Source(lines, calls)


class Remark(NamedTuple):
    """A call that LLVM inlined, or about which it asked."""

    caller: str
    call: Call
    inlined: bool
    reversed: bool  # the plan decides otherwise than LLVM
    place: str  # "": not said

    def line(self, place: str) -> str:
        """The decision as LLVM reads it."""
        how = "inlined into" if self.inlined else "will not be inlined into"
        return f"remark: '{self.call.callee}' {how} '{self.caller}' at callsite {place};\n"

    def names(self, other: Remark) -> bool:
        """Is it about the same call, as far as that is said?"""
        return (self.caller, self.call) == (other.caller, other.call)


def remarks_of(text: str) -> Iterator[Remark]:
    """The remarks on calls that were inlined, and on questions, in their order."""
    for by, name, line, column, caller, rest in REMARK.findall(text):
        values = [(key, value.strip("'\"")) for key, value in VALUE.findall(rest)]
        said, words = dict(values), [value for _, value in values]
        call = Call(said.get("Callee", ""), int(line), int(column))
        # Without LLVM's own decision it is about a call that LLVM did not ask about.
        if by == "inline-ml" and DEFAULT in said:
            inlined = name.startswith("InliningSuccess")
            yield Remark(caller.strip("'\""), call, inlined, inlined == (said[DEFAULT] == "0"), "")
        elif " at callsite " in words:
            place = "".join(words[words.index(" at callsite ") + 1 :]).rstrip(";")
            yield Remark(caller.strip("'\""), call, True, False, place)


class Place(NamedTuple):
    """A call, and its place."""

    call: Call
    text: str


class Functions:
    """Which calls each function has, and at which places, while LLVM inlines."""

    def __init__(self, source: Source) -> None:
        # By function, in the order in which they came, and whether they are still there.
        self._calls: dict[str, dict[Place, bool]] = {}
        self._met = set[tuple[str, Place]]()
        for name, calls in source.calls.items():
            first = source.first_lines.get(name, 0)
            places = (Place(c, f"{name}:{(c.line - first) % (1 << 32)}:{c.column}") for c in calls)
            self._calls[name] = dict.fromkeys(places, True)

    def places(self, remark: Remark) -> list[str]:
        """Where the remark's call may be, the likeliest place first; and what follows from the
        decision."""
        calls = self._calls.setdefault(remark.caller, {})
        same = [place for place in calls if place.call == remark.call]
        # LLVM asks in the order in which calls came; about one that stayed, perhaps again.
        same.sort(key=lambda place: (remark.caller, place) in self._met)
        for found in same[:1]:
            self._met.add((remark.caller, found))
            calls[found] = not remark.inlined
            inherited = self._calls.get(remark.call.callee, {}) if remark.inlined else {}
            for inner in [inner for inner, there in inherited.items() if there]:
                calls.setdefault(Place(inner.call, f"{inner.text} @ {found.text}"), True)
        return [place.text for place in same]


class Remarks:
    """What LLVM says of one source. Errors: ShmbridgeError."""

    def __init__(self, compiler: Compiler, module: Module, folder: Path) -> None:
        self._compiler, self._module, self._folder = compiler, module, folder
        self.output = folder / "output"  # the last object

    def compile(self, plan: Path | None = None, replay: str = "") -> list[Remark]:
        """LLVM's remarks with a plan, or with the lines of a replay."""
        kept = self._folder / "remarks"
        words = [LINES, f"-foptimization-record-file={kept}", "-foptimization-record-passes=inline"]
        if replay:
            (self._folder / "replay").write_text(replay)
            words += ["-mllvm", f"{REPLAY}{self._folder}/replay"]
        self._compiler.run(["-c", *words, "-o", str(self.output)], self._module, plan)
        return list(remarks_of(kept.read_text(errors="replace")))

    def code(self, plan: Path) -> bytes:
        """The code with a plan, made as in a build."""
        self._compiler.run(["-c", "-o", str(self.output)], self._module, plan)
        return text_bytes(self.output)

    def source(self) -> Source:
        """The source's functions."""
        ir = self._folder / "ir"
        emit = [LINES, "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", str(ir)]
        self._compiler.run(emit, self._module)
        return source_of(ir.read_text(errors="replace"))


def calls_of(compiler: Compiler, module: Module, plan: Path) -> list[str]:
    """The calls whose decisions a plan reverses, in its order: "g in f, line 12:3". Errors:
    ShmbridgeError."""
    with tempfile.TemporaryDirectory() as folder:
        found = Remarks(compiler, module, Path(folder)).compile(plan)
    return [
        f"{each.call.callee} in {each.caller}, line {each.call.line}:{each.call.column}"
        for each in found
        if each.reversed
    ]


def export(compiler: Compiler, module: Module, plan: Path) -> str:
    """A plan's decisions as plain clang reads them. Errors: InvalidError (plain clang cannot make
    them), ShmbridgeError."""
    with tempfile.TemporaryDirectory() as folder:
        remarks = Remarks(compiler, module, Path(folder))
        code, wanted = remarks.code(plan), remarks.compile(plan)
        functions, lines, inlined = Functions(remarks.source()), "", 0
        found = remarks.compile()
        for remark in wanted:
            places = functions.places(remark)
            if remark.reversed and not remark.inlined:  # plain clang names its place
                places = [e.place for e in found[inlined : inlined + 1] if e.names(remark)]
            if remark.reversed:
                lines, found = _add(remarks, remark, places, lines, inlined)
            inlined += remark.inlined
        if not lines or text_bytes(remarks.output) == code:
            return lines
    raise InvalidError(f"{plan}: plain clang does not make the same code: use shmbridge run --plan")


def _add(
    remarks: Remarks, remark: Remark, places: Iterable[str], lines: str, inlined: int
) -> tuple[str, list[Remark]]:
    """The lines with one more decision, after so many inlined calls, and the remarks then."""
    for place in places:
        more = lines + remark.line(place)
        found = remarks.compile(replay=more)
        here = [each for each in found[inlined : inlined + 1] if each.place == place]
        if any(each.names(remark) for each in here) == remark.inlined:
            return more, found
    raise InvalidError(
        f"plain clang cannot distinguish the call of {remark.call.callee} in {remark.caller}, line "
        f"{remark.call.line}:{remark.call.column}, from others: use shmbridge run --plan"
    )

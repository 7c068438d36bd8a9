"""The search of `shmbridge tune`: attributes of functions that make a source's score smaller.

Each callee that LLVM always inlines, or never, first gets an attribute that says so. Then a change
of one callee leaves all other decisions as they are, and the sizes of functions show what it saved.
So one compilation tries many changes, of callees whose code does not meet.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

AT_ONCE = 4  # batches that start from the same attributes
ALWAYS, NEVER = "alwaysinline", "noinline"
Attributes: TypeAlias = Mapping[str, str]
Functions: TypeAlias = Mapping[str, "Function"]
Measure: TypeAlias = Callable[[Sequence[Attributes]], Sequence["Measured"]]
Move: TypeAlias = tuple[str, str]  # a callee and its new attribute; "": none
NAME = r"@([\w.$-]+)\("  # quoted ones, which may have commas, are left out
DEFINITION = re.compile(rf"^define ([^\n]*?){NAME}([^\n]*)\{{\n(.*?)^\}}", re.M | re.S)
CALL = re.compile(rf"\b(?:call|invoke|callbr)\b[^\n@]*{NAME}")
GROUP = re.compile(r"^attributes (#\d+) = \{([^\n]*)\}", re.M)
# The source has decided, LLVM does not inline it, or another definition may replace it.
DECIDED = {"noinline", "alwaysinline", "optnone", "naked", "returns_twice"}
REPLACEABLE = {"weak", "linkonce", "extern_weak"}


class Function(NamedTuple):
    """A function: whether only its source can call it, its lines of assembly, how often it calls
    each function, and whether attributes cannot change it."""

    static: bool
    size: int
    calls: Counter[str]
    fixed: bool


def functions_of(assembly: str) -> Functions:
    """The functions that LLVM's assembly defines, by name."""
    groups = {name: re.sub('"[^"]*"', "", words).split() for name, words in GROUP.findall(assembly)}
    found = {}
    for head, name, tail, body in DEFINITION.findall(assembly):
        linkage, calls = {*head.split()}, Counter(CALL.findall(body))
        said = {*tail.split()}.union(*(groups.get(each, ()) for each in re.findall(r"#\d+", tail)))
        # LLVM inlines neither recursive functions nor those with variable arguments.
        fixed = name in calls or "..." in tail or bool(DECIDED & said or REPLACEABLE & linkage)
        static = bool(linkage & {"internal", "private"})
        found[name] = Function(static, body.count("\n"), calls, fixed)
    return found


def file_text(attributes: Attributes) -> str:
    return "".join(f"{name},{attributes[name]}\n" for name in sorted(attributes))


def callees(functions: Functions) -> list[str]:
    """The functions to which an attribute may make a difference: first static ones, and those of
    which the most copies would vanish."""
    called = Counter(name for each in functions.values() for name in each.calls.elements())
    found = {n: function for n, function in functions.items() if n in called and not function.fixed}
    return sorted(found, key=lambda n: (not found[n].static, (1 - called[n]) * found[n].size, n))


class Measured(NamedTuple):
    """A score, math.inf for what does not compile; and the bytes of each function."""

    score: float = math.inf
    sizes: Mapping[str, float] = {}


class Search:
    """Searches for attributes with the smallest score, by functions before and after LLVM."""

    def __init__(self, before: Functions, after: Functions, measure: Measure) -> None:
        self.measure = measure
        self._callers = {to: {n for n, f in before.items() if to in f.calls} for to in before}
        called = {callee for function in after.values() for callee in function.calls}
        self._default = dict[str, str]()  # what LLVM does with a callee; "": not always the same
        for callee in callees(before):
            callers = self._callers[callee] & after.keys()
            calls = {callee in called, *(callee in after[caller].calls for caller in callers)}
            self._default[callee] = "" if len(calls) > 1 else NEVER if True in calls else ALWAYS
        self._tried = dict[Move, list[float]]()  # the sizes that a result depends on
        self.plain = self.score = math.inf
        self.attributes: Attributes = {}
        self._held: Attributes = {}  # where the next changes start
        self._now = Measured()

    def run(self) -> None:
        """Searches until nothing helps or the budget ends."""
        for found, _ in self._try([{}]):
            self.plain, self._now = found.score, found
        start = said = {name: how for name, how in self._default.items() if how}
        for _ in range(2):
            for found, _ in self._try([start]):
                if found.score < math.inf:
                    self._held, self._now, self._tried = start, found, {}
            while self._step():
                pass
            # Without what only repeats LLVM, so its other decisions follow each change.
            start = dict(self.attributes.items() - said.items())

    def _try(self, candidates: Sequence[Attributes]) -> list[tuple[Measured, Attributes]]:
        """Measures candidates, as far as the budget goes, and keeps the best."""
        results = [*zip(self.measure(candidates), candidates, strict=False)]
        for found, attributes in results:
            if (found.score, len(attributes)) <= (self.score, len(self.attributes)):
                self.score, self.attributes = found.score, attributes
        return results

    def _step(self) -> bool:
        """Tries the next batches, then all that helped. False: nothing to try, or no budget."""
        todo = self._moves()
        batches = [b for _ in range(AT_ONCE) if (b := self._apart(todo, not self._now.sizes))]
        results = self._try([self._with(batch) for batch in batches])
        saved = dict[Move, float]()
        for batch, (found, _) in zip(batches, results, strict=False):
            for move in batch:
                self._tried[move] = sizes = self._sizes(move, self._now)
                saved[move] = sum(sizes) - sum(self._sizes(move, found))
        best = sorted((move for move in saved if saved[move] > 0), key=lambda m: (-saved[m], m))
        results = self._try([self._with(self._apart(best))]) + results
        for move in best:  # it meets a better one: try it after that
            del self._tried[move]
        for found, attributes in results:
            if found.score < self._now.score:
                self._now, self._held = found, attributes
        return len(results) > len(batches) > 0

    def _moves(self) -> list[Move]:
        """What was not tried with code of these sizes: new ones first."""
        todo = [
            (name, how)
            for name, default in self._default.items()
            for how in sorted({NEVER, ALWAYS, default} - {self._held.get(name, "")})
            if self._tried.get((name, how)) != self._sizes((name, how), self._now)
        ]
        return sorted(todo, key=lambda move: (move in self._tried, move[1] != NEVER))

    def _region(self, callee: str) -> set[str]:
        """Whose code a change of a callee changes: its own, its callers', and that of functions
        into which these are inlined."""
        found, todo = {callee}, [*self._callers[callee]]
        for caller in todo:
            if caller not in found:
                found.add(caller)
                if self._held.get(caller, self._default.get(caller)) != NEVER:
                    todo += self._callers[caller]
        return found

    def _sizes(self, move: Move, measured: Measured) -> list[float]:
        """The sizes of the functions that it changes, or the score, if nothing else shows that."""
        region = sorted(self._region(move[0])) if measured.sizes else ()
        return [measured.sizes.get(name, 0) for name in region] or [measured.score]

    def _with(self, moves: Iterable[Move]) -> Attributes:
        return {name: how for name, how in {**self._held, **dict(moves)}.items() if how}

    def _apart(self, todo: list[Move], one: bool = False) -> list[Move]:
        """Takes moves whose code does not meet, or only one."""
        taken, met = list[Move](), set[str]()
        for move in [*todo]:
            region = self._region(move[0])
            if not region & met and not (one and taken):
                taken.append(move)
                todo.remove(move)
                met |= region
        return taken

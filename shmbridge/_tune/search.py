"""The search for one source's attributes.

Each callee that LLVM always inlines, or never, first gets an attribute that says so. Then a change
of one callee leaves all other decisions as they are, and the sizes of functions show what it saved.
So one compilation tries many changes, of callees whose code does not meet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from shmbridge._tune.functions import Function, callees

AT_ONCE = 4  # batches that start from the same attributes
ALWAYS, NEVER = "alwaysinline", "noinline"
Attributes: TypeAlias = Mapping[str, str]
Move: TypeAlias = tuple[str, str]  # a callee and its new attribute; "": none


class Measured(float):
    """A score, the bytes of each function by name, and how long it took."""

    sizes: Mapping[str, float] = {}
    seconds = 0.0


# Scores candidates: math.inf for those that do not compile; fewer results where the budget ends.
Measure: TypeAlias = Callable[[Sequence[Attributes]], Sequence[Measured]]


class Search:
    """Searches attributes for the smallest score.

    Args:
        before, after: The functions before and after LLVM's passes.
        measure: Scores candidates.
        together: Try several changes in one compilation, by what sizes show of each.

    Attributes:
        plain: The score without attributes; math.inf: not known.
        score, attributes: The best so far.
    """

    def __init__(
        self,
        before: Mapping[str, Function],
        after: Mapping[str, Function],
        measure: Measure,
        together: bool,
    ) -> None:
        self._functions, self._measure, self._together = before, measure, together
        self._callers: dict[str, dict[str, int]] = {}
        for caller, function in before.items():
            for callee in function.calls.keys() & before.keys():
                self._callers.setdefault(callee, {})[caller] = function.calls[callee]
        called = {callee for function in after.values() for callee in function.calls}
        self._default: dict[str, str] = {}  # what LLVM does with a callee; "": not always the same
        for callee, callers in self._callers.items():
            there = [after[caller] for caller in callers if caller in after]
            inlined = callee not in after or any(callee not in each.calls for each in there)
            both = inlined and callee in called
            self._default[callee] = "" if both else ALWAYS if inlined else NEVER
        self._free = callees(before)
        self._tried: dict[Move, object] = {}  # the sizes that a result depends on
        self.plain = self.score = self._now = Measured(math.inf)
        self.attributes: Attributes = {}
        self._held: Attributes = {}  # those of the last step, whose score is _now

    @property
    def changed(self) -> set[str]:
        """The functions about which the attributes differ from LLVM."""
        return self._changes(self.attributes)

    def _changes(self, attributes: Attributes) -> set[str]:
        return {name for name, how in attributes.items() if how != self._default[name]}

    def run(self) -> None:
        """Searches until nothing helps or the budget ends."""
        self.plain = self._now = next(iter(self._try([{}])), self.plain)
        hold = {name: self._default[name] for name in self._free if self._default[name]}
        for score in self._try([hold]):
            if score < math.inf:
                self._held, self._now = hold, score
        while self._step():
            pass
        self._shorten()
        # Once more, where LLVM's other decisions follow each change.
        self._held, self._now, self._tried = self.attributes, self.score, {}
        while self._step():
            pass

    def _try(self, candidates: Sequence[Attributes]) -> Sequence[Measured]:
        """Scores candidates, and keeps the best."""
        found = self._measure(candidates)
        for attributes, score in zip(candidates, found, strict=False):
            best = self.score, len(self.changed), len(self.attributes)
            if (score, len(self._changes(attributes)), len(attributes)) < best:
                self.score, self.attributes = score, attributes
        return found

    # ---- Moves ----

    def _moves(self) -> Iterator[Move]:
        """What was not tried yet, or when the code around it had other sizes."""
        for name in self._free:
            for how in dict.fromkeys((NEVER, ALWAYS, self._default[name])):
                if how != self._held.get(name, "") and self._tried.get((name, how)) != self._sizes(
                    name
                ):
                    yield name, how

    def _order(self, move: Move) -> tuple[bool, bool, int, Move]:
        """New ones first; of static functions; and where the most copies would vanish."""
        name, how = move
        copies = sum(self._callers[name].values()) - 1 if how == NEVER else 0
        function = self._functions[name]
        return move in self._tried, not function.static, -copies * function.size, move

    def _region(self, callee: str) -> set[str]:
        """Whose code a change of a callee changes: its own, its callers', and that of functions
        into which these are inlined."""
        found, todo = {callee}, [*self._callers[callee]]
        for caller in todo:
            if caller not in found:
                found.add(caller)
                if self._held.get(caller, self._default.get(caller)) != NEVER:
                    todo += self._callers.get(caller, ())
        return found

    def _sizes(self, callee: str) -> object:
        return [self._now.sizes.get(name) for name in sorted(self._region(callee))]

    def _with(self, moves: Iterable[Move]) -> Attributes:
        return {name: how for name, how in {**self._held, **dict(moves)}.items() if how}

    def _apart(self, todo: list[Move]) -> list[Move]:
        """Takes moves whose code does not meet."""
        taken, met = [], set[str]()
        for move in [*todo]:
            region = self._region(move[0])
            if not region & met:
                taken.append(move)
                todo.remove(move)
                met |= region
            if not self._together:
                break
        return taken

    # ---- Steps ----

    def _step(self) -> bool:
        """Tries the next batches, and then all that helped. False: there is nothing to try, or no
        budget."""
        todo = sorted(self._moves(), key=self._order)
        batches = [batch for _ in range(AT_ONCE) if (batch := self._apart(todo))]
        candidates = [self._with(batch) for batch in batches]
        results = [*self._try(candidates)] if batches else []
        saved: dict[Move, float] = {}
        for batch, found in zip(batches, results, strict=False):
            self._tried |= {move: self._sizes(move[0]) for move in batch}
            saved |= self._saved(batch, found)
        best = sorted((move for move in saved if saved[move] > 0), key=lambda m: (-saved[m], m))
        good = self._apart(best) if self._together else best
        for move in best if self._together else ():  # it meets a better one: try it after that
            del self._tried[move]
        if good and (together := self._with(good)) not in candidates:
            candidates = [*candidates[: len(results)], together]
            results += self._try([together])
        ended = not results or len(results) < len(candidates)
        # The last one has only what helped.
        options = [*zip(results, candidates, strict=False)][::-1]
        score, attributes = min(options, key=lambda each: each[0], default=(self._now, {}))
        if score < self._now:
            back = {
                (name, self._held.get(name, ""))
                for name, _ in attributes.items() ^ self._held.items()
            }
            self._held, self._now = attributes, score
            self._tried |= {move: self._sizes(move[0]) for move in back}
        return not ended

    def _saved(self, batch: Sequence[Move], found: Measured) -> dict[Move, float]:
        """What each move of a batch saved, in the functions that it is the nearest to."""
        if len(batch) == 1 or found == math.inf:
            return {batch[0]: self._now - found}
        owners = {name: move for move in batch for name in self._region(move[0])}
        reached = [*owners]
        for name in reached:
            near = {*self._callers.get(name, ()), *self._functions[name].calls}
            for other in sorted(near & self._functions.keys() - owners.keys()):
                owners[other] = owners[name]
                reached.append(other)
        saved: Counter[Move] = Counter()
        for name in owners:
            saved[owners[name]] += int(self._now.sizes.get(name, 0) - found.sizes.get(name, 0))
        return dict(saved)

    def _shorten(self) -> None:
        """Leaves out what only repeats LLVM's decisions, in whole, halves and quarters, where the
        score stays."""
        held = sorted(self.attributes.keys() - self.changed)
        for parts in (1, 2, 4):
            for at in range(parts):
                part = {*held[at::parts]} & self.attributes.keys()
                if part:
                    self._try([{n: how for n, how in self.attributes.items() if n not in part}])

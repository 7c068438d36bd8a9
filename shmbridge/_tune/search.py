"""The search of one source's inlining decisions, as a generator: it yields what to compile, and is
sent the results.

To reverse single decisions and keep together what helps is the method of Theodoridis, Grosser and
Su, "Understanding and exploiting optimal function inlining", ASPLOS 2022. Here one compilation
tries many at once: a decision changes its caller, its callee and functions near them, so the
functions' sizes show what each one saved.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from shmbridge._llvm.plan import Site
from shmbridge._tune.results import FAILED, Call, Result, Results
from shmbridge.training import Module

# Trials from one best, at first and at most: fewer use a gain sooner, more keep compilers busy.
FEW, MANY = 2, 8

T = TypeVar("T")

# Yields sets of flips to compile, and is sent those results that the budget allowed.
Steps: TypeAlias = Generator[Sequence[int], Mapping[int, Result], None]


@dataclass(eq=False)
class Search:
    """The search of one source.

    Attributes:
        module: The source.
        before: The score of the plain compiler.
        results: Of all its compilations, also earlier ones.
        used: Those of this search.
        best: Of these, the first with the smallest score; None: there is none.
    """

    module: Module
    before: float
    results: Results
    used: set[Result] = field(default_factory=set)
    best: Result | None = None

    @property
    def after(self) -> float:
        """The best score so far, the plain compiler's included."""
        return min(self.before, self.best.score) if self.best else self.before

    def use(self, flips: int) -> Result | None:
        """The result of these flips, which counts from now on; None: it is not known."""
        result = self.results.find(flips)
        if result:
            self.used.add(result)
            if self.best is None or result.score < self.best.score:
                self.best = result
        return result


class Move(NamedTuple):
    """Decisions to reverse together, and the functions whose code they are in."""

    flips: int
    functions: frozenset[str]


def flip_rounds(search: Search, seed: int) -> Steps:
    """Each round tries every move on the best compilation so far, unless the code of its functions
    is as when it was tried. A round without a gain ends the search."""
    best, count = (yield [0])[0], FEW
    for number in itertools.count():
        began, tried = best, set[tuple[Move, float]]()
        while True:
            graph = Graph(search.results, best)
            moves = [(move, graph.size(move)) for move in graph.moves(f"{seed} {number}")]
            untried = (move for move, size in moves if (move, size) not in tried)
            trials = graph.trials(untried, count)
            if not trials:
                break
            tried.update((move, graph.size(move)) for trial in trials for move in trial)
            flips = {graph.flips(trial): trial for trial in trials}
            saved: dict[Move, float] = {}
            for key, result in (yield [*flips]).items():
                saved |= graph.saved(flips[key], result)
            best, count = (yield from _kept(graph, saved)), min(2 * count, MANY)
        if best.score >= began.score:
            return


def _kept(
    graph: Graph, saved: Mapping[Move, float]
) -> Generator[Sequence[int], Mapping[int, Result], Result]:
    """The best compilation with the moves that helped: with all of them, then with those that also
    help together, or, if that does not tell, with the half that saved more."""
    best = graph.start
    helpful = sorted((m for m in saved if saved[m] > 0), key=saved.__getitem__, reverse=True)
    while helpful:
        flips = graph.flips(helpful)
        found = (yield [flips]).get(flips)
        if not found or (best is not graph.start and found.score >= best.score):
            break
        together = graph.saved(helpful, found)
        still = [move for move in helpful if together.get(move, 0) > 0]
        if found.score < best.score:
            best = found
            if len(still) == len(helpful):
                break
        elif not still or len(still) == len(helpful):
            still = helpful[: len(helpful) // 2]
        helpful = still
    return best


class Graph:
    """The functions of a compilation, and the calls between them.

    Attributes:
        start: The compilation.
    """

    def __init__(self, results: Results, start: Result) -> None:
        self.start = start
        self._results, self._calls = results, results.calls(start)
        self._near = _near(self._calls.values())
        flipped = set(results.sites_of(start.flipped))
        self._inlined = {s: call.default ^ (s in flipped) for s, call in self._calls.items()}
        self._into: dict[str, set[str]] = {}
        for site, call in self._calls.items():
            if self._inlined[site]:
                self._into.setdefault(call.callee, set()).add(call.caller)

    def moves(self, seed: str) -> list[Move]:
        """All decisions alike about one callee, and each decision alone, LLVM's closest decisions
        first; the same order with every Python, and for every order of results."""

        def order(site: Site) -> tuple[int, bytes]:
            drawn = hashlib.sha256(f"{seed} {site}".encode()).digest()
            return self._calls[site].doubt, drawn

        singles = sorted(self._calls, key=order)
        callees: dict[tuple[str, int], dict[Site, None]] = {}
        members: dict[Site, list[Site]] = {}
        for site in singles:
            call = self._calls[site]
            group = self._results.group(call)
            members.setdefault(group, []).append(site)
            callees.setdefault((call.callee, call.default), {})[group] = None
        found: dict[Move, None] = {}
        for groups in callees.values():
            sites = [site for group in groups for site in members[group]]
            if len(sites) > 1:
                found[self._move(groups, sites)] = None
        return [*found, *(self._move([site], [site]) for site in singles)]

    def _move(self, flips: Iterable[Site], sites: Iterable[Site]) -> Move:
        """Its code is also in the functions that caller and callee are inlined into."""
        calls = [self._calls[site] for site in sites]
        names = {name: None for call in calls for name in (call.caller, call.callee)}
        return Move(self._results.bits(flips), frozenset(_reached(names, self._into)))

    def trials(self, moves: Iterable[Move], count: int) -> list[list[Move]]:
        """Some of these moves, for so many compilations: in each, moves of functions that are not
        near each other."""
        trials = [(set[str](), list[Move]()) for _ in range(count)]
        for move in moves:
            for taken, trial in trials:
                if not taken & move.functions:
                    taken |= move.functions.union(*(self._near[name] for name in move.functions))
                    trial.append(move)
                    break
        return [trial for _, trial in trials if trial]

    def flips(self, moves: Iterable[Move]) -> int:
        """The compilation with these moves."""
        flips = 0
        for move in moves:
            flips |= move.flips
        return self.start.wanted ^ flips

    def size(self, move: Move) -> float:
        """The code of its functions."""
        return sum(self.start.parts.get(name, 0) for name in move.functions)

    def saved(self, moves: Sequence[Move], result: Result) -> dict[Move, float]:
        """What each move saved in a compilation with all of them. Each function counts for the move
        that it is nearest to. Empty if that failed."""
        if result.score == FAILED:
            return {}
        saved, before, after = dict.fromkeys(moves, 0.0), self.start.parts, result.parts
        near = _near([*self._calls.values(), *self._results.calls(result).values()])
        owners = {name: move for move in moves for name in sorted(move.functions)}
        for name, owner in _reached(owners, near).items():
            saved[owner] += before.get(name, 0) - after.get(name, 0)
        return saved


def _near(calls: Iterable[Call]) -> dict[str, set[str]]:
    """The callers and callees of each function."""
    found: dict[str, set[str]] = {}
    for call in calls:
        found.setdefault(call.caller, set()).add(call.callee)
        found.setdefault(call.callee, set()).add(call.caller)
    return found


def _reached(start: Mapping[str, T], edges: Mapping[str, set[str]]) -> dict[str, T]:
    """These functions and all that they lead to, each with the value of a nearest one."""
    found = dict(start)
    reached = [*found]
    for name in reached:
        for to in sorted(edges.get(name, ())):
            if to not in found:
                found[to] = found[name]
                reached.append(to)
    return found

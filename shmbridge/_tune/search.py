"""The search of one source's inlining decisions, as a generator: it yields what to compile, and is
sent the results.

The method is that of Theodoridis, Grosser and Su, "Understanding and exploiting optimal function
inlining", ASPLOS 2022.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from shmbridge._llvm.plan import Site
from shmbridge._tune.results import Result, Results
from shmbridge.training import Module

# Flips that are tested against the same best: fewer use a gain sooner, more keep compilers busy.
TOGETHER = 8

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


def flip_rounds(search: Search, seed: int) -> Steps:
    """Each round reverses single decisions of the best compilation so far. Those that help are kept
    together, or, if they conflict, in halves. A round without a gain ends the search."""
    results = search.results
    best = (yield [0])[0]
    for number in itertools.count():
        began = best
        sites = _shuffled(results.sites_of(best.asked), f"{seed} {number}")
        for at in range(0, len(sites), TOGETHER):
            bits = [results.bits([site]) for site in sites[at : at + TOGETHER]]
            flips = {best.flipped ^ bit: bit for bit in bits if bit & best.asked}
            found = yield [*flips]
            saved = {flips[key]: best.score - result.score for key, result in found.items()}
            helpful = [bit for bit in saved if saved[bit] > 0]
            helpful.sort(key=saved.__getitem__, reverse=True)
            best = yield from _kept(best, helpful, saved)
        if best.score >= began.score:
            return


def _kept(
    best: Result, flips: Sequence[int], saved: Mapping[int, float]
) -> Generator[Sequence[int], Mapping[int, Result], Result]:
    """The best compilation with these flips, if together they save at least half of what each saved
    alone; otherwise with the two halves one after the other."""
    if not flips:
        return best
    together = best.flipped
    for flip in flips:
        together ^= flip
    found = (yield [together]).get(together)
    gain = best.score - found.score if found else 0
    if found and gain > 0 and (len(flips) == 1 or gain >= sum(saved[f] for f in flips) / 2):
        return found
    if len(flips) > 1:
        half = (len(flips) + 1) // 2
        best = yield from _kept(best, flips[:half], saved)
        best = yield from _kept(best, flips[half:], saved)
    return best


def _shuffled(sites: Iterable[Site], seed: str) -> list[Site]:
    """The same order with every Python, and for every order of `sites`."""
    return sorted(sites, key=lambda site: hashlib.sha256(f"{seed} {site}".encode()).digest())

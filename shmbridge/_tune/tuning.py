"""`shmbridge tune`: searches the inlining decisions of clang for several sources."""

from __future__ import annotations

import hashlib
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shmbridge._host.batch import Batch
from shmbridge._llvm import plan as plans
from shmbridge._llvm.plan import Decision, Plan, Site, Sites
from shmbridge._tune.clang import Compiler, Measure, Parts
from shmbridge._tune.results import FAILED, Call, Result, Results
from shmbridge._tune.search import Search, Steps, flip_rounds
from shmbridge._values.tensor import Array
from shmbridge.errors import ShmbridgeError
from shmbridge.training import Module, Outcome, OutcomeKind
from shmbridge.training._trajectories import Collection

# A candidate may take this many times as long as the slowest plain compilation, and at least these
# seconds.
SLOWER, SHORTEST = 10, 5.0
COMMENTED = {
    "cost": "cost_estimate",
    "callee blocks": "callee_basic_block_count",
    "callee users": "callee_users",
    "caller blocks": "caller_basic_block_count",
}
# What decisions before a question change in it: without these, calls of one function are alike.
OF_FUNCTIONS = {
    "callee_users",
    "caller_users",
    "caller_basic_block_count",
    "caller_conditionally_executed_blocks",
    "is_caller_avail_external",
}
UNDECIDED = {OutcomeKind.NOT_STARTED, OutcomeKind.ENDED}


@dataclass
class _Candidate:
    """A compilation in progress, with LLVM's own decisions reversed at some sites and groups."""

    flips: frozenset[Site]
    sites: Sites = field(default_factory=Sites)
    asked: dict[Site, Call] = field(default_factory=dict)
    flipped: dict[Site, Decision] = field(default_factory=dict)

    def advise(self, values: Sequence[int], features: Mapping[str, int]) -> int:
        site, default = self.sites.next(values), features[plans.DEFAULT]
        alike = plans.question_hash(features[name] for name in features if name not in OF_FUNCTIONS)
        doubt = abs(features["cost_estimate"] - features["threshold"])
        call = self.asked[site] = Call(default, alike, doubt)
        if (site in self.flips) == (Results.group(call) in self.flips):
            return default
        about = ", ".join(f"{name} {features[key]}" for name, key in COMMENTED.items())
        self.flipped[site] = Decision(1 - default, f"question {len(self.asked)}: {about}")
        return 1 - default

    def known(self, score: float) -> tuple[dict[Site, Call], Mapping[str, float]]:
        """What each question was about, and the parts of the score."""
        if not isinstance(score, Parts) or len(score.calls) != len(self.asked):
            return self.asked, {"": score}
        pairs = zip(self.asked.items(), score.calls, strict=True)
        named = {site: call._replace(caller=a, callee=b) for (site, call), (a, b) in pairs}
        return named, score.functions


class Tuning:
    """Searches the decisions of several sources, each for its own smallest score. The sources take
    turns, so that a budget serves them all.

    Args:
        compiler: The compiler.
        modules: The sources.
        score: What to make smaller.
        folder: The folder of results, which later searches use.
        jobs: How many compilations run at once. It does not change the result.
        compilations: The maximum number of distinct compilations, including stored ones.
        until: No compilation starts after this, in seconds of time.monotonic.
        seed: Determines the order of flips.
        progress: Called after each compilation, and each turn of all sources.
        steps: The search of one source.

    Attributes:
        searches: The search of each source, as far as it compiles.
        failed: Why others do not, by source.
        compiled: The number of compilations.
        cpu: Seconds of CPU that these took.
        spent: Did the budget end the search?
    """

    def __init__(
        self,
        compiler: Compiler,
        modules: Sequence[Module],
        score: Measure,
        folder: Path,
        *,
        jobs: int,
        compilations: float = math.inf,
        until: float = math.inf,
        seed: int = 0,
        progress: Callable[[Tuning], None] = lambda tuning: None,
        steps: Callable[[Search, int], Steps] = flip_rounds,
    ) -> None:
        self._compiler, self._modules, self._score = compiler, modules, score
        self._folder, self._jobs, self._compilations = folder, jobs, compilations
        self._until = until
        self._seed, self._progress, self._steps = seed, progress, steps
        self._task = compiler.task(score)
        self._running: list[_Candidate] = []
        self._stack = ExitStack()
        self.searches: list[Search] = []
        self.failed: dict[Module, ShmbridgeError] = {}
        self.compiled, self.cpu, self.spent = 0, 0.0, False

    @property
    def distinct(self) -> int:
        """The number of results, including stored ones."""
        return sum(len(search.used) for search in self.searches)

    @property
    def before(self) -> float:
        """The sum of the plain compiler's scores."""
        return sum(search.before for search in self.searches)

    @property
    def after(self) -> float:
        """The sum of the best scores so far."""
        return sum(search.after for search in self.searches)

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> None:
        """Searches until nothing helps, or the budget is spent. Errors: ShmbridgeError."""
        self._start()
        turns = {search: self._steps(search, self._seed) for search in self.searches}
        wanted = {search: next(steps) for search, steps in turns.items()}
        with self._collection() as collection:
            while wanted:
                found = self._evaluate(collection, wanted)
                self._drop_failures()
                self._progress(self)
                if self.spent:
                    return
                wanted = {}
                for search in self.searches:
                    if search in found:
                        with suppress(StopIteration):
                            wanted[search] = turns[search].send(found[search])

    def plans(self) -> dict[Module, Plan]:
        """A plan for each source whose search has begun. Without decisions where the plain compiler
        is as good; otherwise the best compilation is repeated. Errors: ShmbridgeError."""
        self._until = math.inf
        begun = [(search, search.best) for search in self.searches if search.best]
        wanted = [
            (search, best.wanted if best.score < search.before else 0) for search, best in begun
        ]
        with self._collection() as collection:
            repeated = self._compile(collection, wanted)
        pairs = zip(begun, repeated, strict=True)
        return {search.module: self._plan(search, each) for (search, _), each in pairs}

    def _plan(self, search: Search, repeated: _Candidate) -> Plan:
        module = search.module
        source = plans.below(Path.cwd(), module.path)
        return Plan(
            self._compiler.version,
            source,
            hashlib.sha256(module.path.read_bytes()).hexdigest(),
            shlex.join([*self._compiler.words(module)[:-1], source]),
            self._score.name,
            search.before,
            search.after,
            len(repeated.asked),
            repeated.flipped,
        )

    def _drop_failures(self) -> None:
        """Forgets sources that do not compile when they ask."""
        for search in list(self.searches):
            if search.best and search.best.score == FAILED:
                self.failed[search.module] = ShmbridgeError(
                    "the compiler fails when it asks about inlining"
                )
                self.searches.remove(search)

    # ---- Start ----

    def _start(self) -> None:
        """Scores the plain compiler, and opens the results of each source that it compiles."""
        pool = ThreadPoolExecutor(self._jobs)
        slowest = 0.0
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            started = pool.map(self._plain, self._modules)
            for module, start in zip(self._modules, started, strict=True):
                if isinstance(start, ShmbridgeError):
                    self.failed[module] = start
                    continue
                digest, before, seconds = start
                results = Results(self._folder / f"{digest}.jsonl")
                self._stack.callback(results.close)
                self.searches.append(Search(module, before, results))
                slowest = max(slowest, seconds)
        finally:
            pool.shutdown(cancel_futures=True)
        self._task.seconds = max(SHORTEST, SLOWER * slowest)

    def _plain(self, module: Module) -> tuple[str, float, float] | ShmbridgeError:
        """The digest, score and seconds of a plain compilation; or why it fails."""
        try:
            digest, began = self._compiler.digest(module, self._score.key), time.monotonic()
            before = self._task.baseline(module)["score"]
            return digest, before, time.monotonic() - began
        except ShmbridgeError as error:
            return error

    # ---- Compilations ----

    def _evaluate(
        self, collection: Collection, wanted: Mapping[Search, Sequence[int]]
    ) -> dict[Search, dict[int, Result]]:
        """The results of these sets of flips, as far as the budget allows."""
        room = self._compilations - self.distinct
        allowed: list[tuple[Search, int]] = []
        missing: list[tuple[Search, int]] = []
        for search, flips in _interleaved(wanted):
            known = search.results.find(flips)
            room -= known not in search.used
            if room < 0:
                self.spent = True
                break
            allowed.append((search, flips))
            if known is None:
                missing.append((search, flips))
        self._compile(collection, missing)
        found: dict[Search, dict[int, Result]] = {search: {} for search in wanted}
        for search, flips in allowed:
            if (result := search.use(flips)) is not None:
                found[search][flips] = result
        return found

    def _compile(
        self, collection: Collection, wanted: Sequence[tuple[Search, int]]
    ) -> list[_Candidate]:
        """Compiles with these flips, and stores the results; fewer after the time limit."""
        self._running = [
            _Candidate(frozenset(search.results.sites_of(flips))) for search, flips in wanted
        ]

        def jobs() -> Iterator[tuple[Module, int]]:
            for row, (search, _) in enumerate(wanted):
                if time.monotonic() >= self._until:
                    self.spent = True
                    return
                yield search.module, row

        for row, compiled in collection.run(jobs()):
            candidate, (search, flips) = self._running[row], wanted[row]
            score = _score(compiled.outcome)
            known = search.results.find(flips)
            if known is None:
                calls, parts = candidate.known(score)
                search.results.add(calls, candidate.flipped, flips, score, parts)
                self.compiled += 1
                self.cpu += compiled.outcome.cpu
            elif known.score != score:
                raise ShmbridgeError(
                    f"{search.module.name}: expected the score {known.score:g} again, found "
                    f"{score:g}: the compiler or the score is not deterministic"
                )
            self._progress(self)
        return self._running

    def _collection(self) -> Collection:
        return Collection(self._advise, self._task, self._jobs)

    def _advise(self, batch: Batch, rows: Array) -> Array:
        names = plans.hashed_names(batch)
        columns = np.concatenate([batch[name] for name in names], axis=1).tolist()
        advice = [
            self._running[row].advise(values, dict(zip(names, values, strict=True)))
            for row, values in zip(rows, columns, strict=True)
        ]
        return np.array(advice, np.int64)


def _interleaved(wanted: Mapping[Search, Sequence[int]]) -> Iterator[tuple[Search, int]]:
    """The first of each, the second of each, ...: the end of a budget is the same for all."""
    for at in range(max(map(len, wanted.values()))):
        for search, sets in wanted.items():
            if at < len(sets):
                yield search, sets[at]


def _score(outcome: Outcome) -> float:
    if outcome.kind in UNDECIDED or outcome.defaulted:
        raise ShmbridgeError(
            f"a compilation was not as decided: {outcome.kind}, {outcome.defaulted} decisions by "
            f"default: {outcome.stderr[-500:].strip()}: try {outcome.command}"
        )
    return outcome.scores["score"] if outcome.ok else FAILED

"""The search of `shmbridge tune`: reverses the inlining decisions of one compile command.

The method is that of Theodoridis, Grosser and Su, "Understanding and exploiting optimal function
inlining", ASPLOS 2022.
"""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shmbridge._host.batch import Batch
from shmbridge._jobs import supervised
from shmbridge._llvm import compilers
from shmbridge._llvm import plan as plans
from shmbridge._llvm.plan import Decision, Plan, Site, Sites
from shmbridge._values.tensor import Array
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training._compilation import Outcome, OutcomeKind
from shmbridge.training._corpus import ALONE, WITH_ARGUMENT, Module
from shmbridge.training._results import FAILED, Result, Results
from shmbridge.training._task import SECONDS, VERSION, Task
from shmbridge.training._trajectories import _Collection
from shmbridge.training.scores import Score, object_size, printed, text_size

# Flips that are tested against the same best: fewer use a gain sooner, more keep compilers busy.
TOGETHER = 32
# A candidate may take this many times as long as the plain compiler, and at least these seconds.
SLOWER, SHORTEST = 10, 5.0
SCORES: dict[str, Score] = {"text": text_size, "object": object_size}
NUMBER = r"([-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)"
COMMENTED = {
    "cost": "cost_estimate",
    "callee blocks": "callee_basic_block_count",
    "callee users": "callee_users",
    "caller blocks": "caller_basic_block_count",
}
UNDECIDED = {OutcomeKind.NOT_STARTED, OutcomeKind.ENDED}


def score_of(text: str) -> Score:
    """A score by its name, or a command with {output} that prints a number. Errors:
    InvalidError."""
    if text in SCORES:
        return SCORES[text]
    if "{output}" not in text:
        expected = ", ".join(SCORES)
        raise InvalidError(f"{text!r}: expected {expected}, or a command that contains {{output}}")
    return printed(text, NUMBER)


class Command:
    """A command that compiles one source with clang. Errors: InvalidError.

    Attributes:
        words: The compiler and its arguments.
        module: The source.
        arguments: The arguments without outputs; {module} is the source.
        version: The compiler's.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words, folder, source = list(words), Path.cwd(), compilers.source_of(words)
        if compilers.kind_of(words[0]) != "clang" or not compilers.tells_default(words[0]):
            raise InvalidError(
                f"{words[0]}: expected clang of LLVM 22 or later, whose inliner sends its own "
                "decisions"
            )
        if not (folder / source).is_file() or not source:
            raise InvalidError(
                f"{shlex.join(words)}: expected a command that compiles one source file"
            )
        self.module = Module(os.path.basename(source), folder / source, folder=folder)
        self.source = plans.below(folder, source)
        self.arguments = ["{module}" if w == source else w for w in _without_outputs(words[1:])]
        report, said = supervised.run([self.words[0], "--version"], seconds=VERSION)
        self.version = said.decode(errors="replace").partition("\n")[0]
        if report.status or not self.version:
            raise InvalidError(f"{words[0]} --version failed: {report.unstarted or report.stderr}")

    def task(self, score: Score) -> Task:
        """The task that compiles it, asking about inlining."""
        flags = ["-mllvm", compilers.INCLUDE_DEFAULT]
        command = [self.words[0], *flags, *self.arguments, "-o", "{output}"]
        return Task(command, llvm="inline", scores={"score": score})

    def digest(self, score: str) -> str:
        """A hash of all that the results of a search depend on: the source as preprocessed, the
        arguments, the compiler, and the score."""
        module = str(self.module.path)
        words = [self.words[0], *(w.replace("{module}", module) for w in self.arguments), "-E"]
        report, text = supervised.run(words, cwd=self.module.folder, seconds=SECONDS)
        if report.status:
            why = report.unstarted or report.limit or report.stderr[-500:].strip()
            raise ShmbridgeError(f"{shlex.join(words)} failed: {why}")
        key = "\0".join(("1", self.version, score, *words)).encode(errors="surrogateescape")
        return hashlib.sha256(key + b"\0" + text).hexdigest()


def _without_outputs(words: Iterable[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in WITH_ARGUMENT:
            next(rest, None)
        elif word == "-c" or (word not in ALONE and not word.startswith(("-o", "-M"))):
            yield word


@dataclass
class _Candidate:
    """A compilation in progress, with LLVM's own decisions reversed at some sites."""

    flips: frozenset[Site]
    sites: Sites = field(default_factory=Sites)
    asked: list[Site] = field(default_factory=list)
    flipped: dict[Site, Decision] = field(default_factory=dict)

    def advise(self, values: Sequence[int], features: Mapping[str, int]) -> int:
        site = self.sites.next(values)
        self.asked.append(site)
        default = features[plans.DEFAULT]
        if site not in self.flips:
            return default
        about = ", ".join(f"{name} {features[key]}" for name, key in COMMENTED.items())
        self.flipped[site] = Decision(1 - default, f"question {len(self.asked)}: {about}")
        return 1 - default


class Search:
    """Searches the decisions of a command for the smallest score.

    Each round reverses single decisions of the best compilation so far. Those that help are kept
    together, or, if they conflict, in halves. A round without a gain ends the search.

    Args:
        command: The command.
        score: See `score_of`.
        folder: The folder of results, which later searches of the same command use.
        jobs: How many compilers run at once. It does not change the result.
        compilations: The maximum number of distinct compilations, including stored ones.
        minutes: No compilation starts after these.
        seed: Determines the order of flips.
        progress: Called after each result and each new best one.

    Attributes:
        before: The score of the plain compiler.
        best: The best compilation so far.
        compiled: The number of compilations of this search.
        distinct: The number of its results, including stored ones.
        spent: Did the budget end the search?
    """

    def __init__(
        self,
        command: Command,
        score: str,
        folder: Path,
        *,
        jobs: int,
        compilations: float,
        minutes: float,
        seed: int,
        progress: Callable[[], None],
    ) -> None:
        self._command, self._score_name, self._seed = command, score, seed
        self._task = command.task(score_of(score))
        self._jobs, self._compilations, self._progress = jobs, compilations, progress
        self._until = time.monotonic() + 60 * minutes
        folder.mkdir(parents=True, exist_ok=True)
        self._results = Results(folder / f"{command.digest(score)}.jsonl")
        self._used: set[Result] = set()
        self._running: list[_Candidate] = []
        self.before, self.compiled, self.spent = 0.0, 0, False
        self.best: Result | None = None

    @property
    def distinct(self) -> int:
        """The number of results of this search."""
        return len(self._used)

    def close(self) -> None:
        """Closes the file of results."""
        self._results.close()

    def run(self) -> None:
        """Searches until nothing helps, or the budget is spent. Errors: ShmbridgeError (the
        compiler fails without flips)."""
        began = time.monotonic()
        self.before = self._task.baseline(self._command.module)["score"]
        self._task.seconds = max(SHORTEST, SLOWER * (time.monotonic() - began))
        with self._collection() as collection:
            start = self._evaluate(collection, [0]).get(0)
            if start is None:
                return
            if start.score == FAILED:
                raise ShmbridgeError("the compiler fails when it asks about inlining")
            self.best = start
            rounds = 0
            while self._round(collection, rounds) and not self.spent:
                rounds += 1

    def plan(self) -> Plan | None:
        """The plan of the best compilation, which is compiled once more. Without decisions if the
        plain compiler is as good. None: the search has not started. Errors: ShmbridgeError."""
        best, path = self.best, self._command.module.path
        if best is None:
            return None
        decisions: Mapping[Site, Decision] = {}
        after, questions = self.before, best.asked.bit_count()
        if best.score < self.before:
            self._until = math.inf
            with self._collection() as collection:
                (candidate,) = self._compile(collection, [best.flipped])
            decisions, after, questions = candidate.flipped, best.score, len(candidate.asked)
        return Plan(
            self._command.version,
            self._command.source,
            hashlib.sha256(path.read_bytes()).hexdigest(),
            shlex.join(self._command.words),
            self._score_name,
            self.before,
            after,
            questions,
            decisions,
        )

    # ---- The search ----

    def _round(self, collection: _Collection, number: int) -> bool:
        """Reverses each decision of the best compilation. Did that help?"""
        best = began = self._best()
        sites = self._shuffled(self._results.sites_of(best.asked), number)
        for at in range(0, len(sites), TOGETHER):
            best = self._best()
            bits = [self._results.bits([site]) for site in sites[at : at + TOGETHER]]
            flips = {best.flipped ^ bit: bit for bit in bits if bit & best.asked}
            found = self._evaluate(collection, [*flips])
            saved = {flips[key]: best.score - result.score for key, result in found.items()}
            helpful = [bit for bit in saved if saved[bit] > 0]
            self._keep(collection, sorted(helpful, key=saved.__getitem__, reverse=True), saved)
            if self.spent:
                break
        return self._best().score < began.score

    def _keep(
        self, collection: _Collection, flips: Sequence[int], saved: Mapping[int, float]
    ) -> None:
        """Adds these flips to the best compilation, if together they save at least half of what
        each saved alone; otherwise the two halves one after the other."""
        if not flips:
            return
        best = self._best()
        together = best.flipped
        for flip in flips:
            together ^= flip
        found = self._evaluate(collection, [together]).get(together)
        gain = best.score - found.score if found else 0
        if found and gain > 0 and (len(flips) == 1 or gain >= sum(saved[f] for f in flips) / 2):
            self.best = found
            self._progress()
        elif len(flips) > 1:
            half = (len(flips) + 1) // 2
            self._keep(collection, flips[:half], saved)
            self._keep(collection, flips[half:], saved)

    def _best(self) -> Result:
        assert self.best
        return self.best

    def _shuffled(self, sites: Iterable[Site], number: int) -> list[Site]:
        """The same order with every Python, and for every order of `sites`."""

        def key(site: Site) -> bytes:
            return hashlib.sha256(f"{self._seed} {number} {site}".encode()).digest()

        return sorted(sites, key=key)

    # ---- Compilations ----

    def _evaluate(self, collection: _Collection, wanted: Sequence[int]) -> dict[int, Result]:
        """The results of these sets of flips, as far as the budget allows."""
        allowed: dict[int, Result | None] = {}
        room = self._compilations - len(self._used)
        for flips in wanted:
            known = self._results.find(flips)
            if known not in self._used:
                room -= 1
            if room < 0:
                self.spent = True
                break
            allowed[flips] = known
        self._compile(collection, [flips for flips, known in allowed.items() if known is None])
        found = {}
        for flips in allowed:
            if (result := self._results.find(flips)) is not None:
                found[flips] = result
                self._used.add(result)
        return found

    def _compile(self, collection: _Collection, wanted: Sequence[int]) -> list[_Candidate]:
        """Compiles with these flips, and stores the results; fewer after the time limit."""
        self._running = [_Candidate(frozenset(self._results.sites_of(flips))) for flips in wanted]

        def jobs() -> Iterator[tuple[Module, int]]:
            for row in range(len(wanted)):
                if time.monotonic() >= self._until:
                    self.spent = True
                    return
                yield self._command.module, row

        for row, compiled in collection.run(jobs()):
            candidate = self._running[row]
            score = _score(compiled.outcome)
            known = self._results.find(wanted[row])
            if known is None:
                self._results.add(candidate.asked, candidate.flipped, score)
                self.compiled += 1
            elif known.score != score:
                raise ShmbridgeError(
                    f"expected the score {known.score:g} again, found {score:g}: the compiler or "
                    "the score is not deterministic"
                )
            self._progress()
        return self._running

    def _collection(self) -> _Collection:
        return _Collection(self._advise, self._task, self._jobs, _reward, {}, None, keep=False)

    def _advise(self, batch: Batch, rows: Array) -> Array:
        names = plans.hashed_names(batch)
        columns = np.concatenate([batch[name] for name in names], axis=1).tolist()
        advice = [
            self._running[row].advise(values, dict(zip(names, values, strict=True)))
            for row, values in zip(rows, columns, strict=True)
        ]
        return np.array(advice, np.int64)


def _reward(outcome: Outcome, baseline: Mapping[str, float]) -> float:
    return outcome.scores["score"]


def _score(outcome: Outcome) -> float:
    if outcome.kind in UNDECIDED or outcome.defaulted:
        raise ShmbridgeError(
            f"a compilation was not as decided: {outcome.kind}, {outcome.defaulted} decisions by "
            f"default: {outcome.stderr[-500:].strip()}: try {outcome.command}"
        )
    return outcome.scores["score"] if outcome.ok else FAILED

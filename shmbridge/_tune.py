"""The search of `shmbridge tune`: attributes of functions that make a source's score smaller.

Each callee that LLVM always inlines, or never, first gets an attribute that says so. Then a change
of one callee leaves all other decisions as they are, and the sizes of functions show what it saved.
So one compilation tries many changes, of callees whose code does not meet.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias

from shmbridge.errors import InvalidError
from shmbridge.training import Module, Task
from shmbridge.training.scores import Score, function_sizes

# Seconds of a plain compilation; and how many times as long a candidate may take, or these seconds.
PLAIN, SLOWER, SHORTEST = 600.0, 10, 10.0
AT_ONCE = 4  # batches that start from the same attributes
ALWAYS, NEVER = "alwaysinline", "noinline"
Attributes: TypeAlias = Mapping[str, str]
Move: TypeAlias = tuple[str, str]  # a callee and its new attribute; "": none
NAME = r"@([\w.$-]+)\("  # quoted ones, which may have commas, are left out
DEFINITION = re.compile(rf"^define ([^\n]*?){NAME}([^\n]*)\{{\n(.*?)^\}}", re.M | re.S)
CALL = re.compile(rf"\b(?:call|invoke|callbr)\b[^\n@]*{NAME}")
GROUP = re.compile(r"^attributes (#\d+) = \{([^\n]*)\}", re.M)
# The source has decided, or LLVM does not inline: attributes, and linkage that another definition
# may replace.
DECIDED = {"noinline", "alwaysinline", "optnone", "naked", "returns_twice"}
REPLACEABLE = {"weak", "linkonce", "extern_weak"}


class Function(NamedTuple):
    """A function: whether only its source can call it, its lines of assembly, how often it calls
    each function, and whether attributes cannot change it."""

    static: bool
    size: int
    calls: Mapping[str, int]
    fixed: bool


Functions: TypeAlias = Mapping[str, Function]


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


def file_text(attributes: Attributes, comment: str = "") -> str:
    """The file: a comment, which is a line without a comma, and a line for each function."""
    lines = [f"{name},{attributes[name]}" for name in sorted(attributes)]
    return "\n".join(["# " + " ".join(re.split(r"[,\s]+", comment)), *lines, ""])


def callees(functions: Functions) -> list[str]:
    """The functions to which an attribute may make a difference."""
    called = {name for function in functions.values() for name in function.calls}
    return sorted(n for n, function in functions.items() if n in called and not function.fixed)


class Measured(NamedTuple):
    """A score, math.inf for what does not compile; and the bytes of each function."""

    score: float = math.inf
    sizes: Mapping[str, float] = {}


Measure: TypeAlias = Callable[[Sequence[Attributes]], Sequence[Measured]]


class Search:
    """Searches for attributes with the smallest score, by the functions before and after LLVM's
    passes. together: change several in one compilation, and see by sizes what each saved."""

    def __init__(
        self, before: Functions, after: Functions, measure: Measure, together: bool
    ) -> None:
        self._functions, self._measure, self._together = before, measure, together
        self._callers = {name: set[str]() for name in before}
        for caller, function in before.items():
            for name in function.calls.keys() & before.keys():
                self._callers[name].add(caller)
        called = {callee for function in after.values() for callee in function.calls}
        self._default = dict[str, str]()  # what LLVM does with a callee; "": not always the same
        for callee in callees(before):
            there = [after[caller] for caller in self._callers[callee] & after.keys()]
            inlined = callee not in after or any(callee not in each.calls for each in there)
            both = inlined and callee in called
            self._default[callee] = "" if both else ALWAYS if inlined else NEVER
        self._tried = dict[Move, object]()  # the sizes that a result depends on
        self.plain = self.score = math.inf
        self.attributes: Attributes = {}
        self._held: Attributes = {}  # where the next changes start
        self._now = Measured()

    def run(self) -> None:
        """Searches until nothing helps or the budget ends."""
        for found in self._try([{}]):
            self.plain, self._now = found.score, found
        self._steps({name: how for name, how in self._default.items() if how})
        # Without what only repeats LLVM, so its other decisions follow each change.
        self._steps(self._changes(self.attributes))

    def _steps(self, start: Attributes) -> None:
        for found in self._try([start]):
            if found.score < math.inf:
                self._held, self._now, self._tried = start, found, {}
        while self._step():
            pass

    def _try(self, candidates: Sequence[Attributes]) -> Sequence[Measured]:
        """Measures candidates, and keeps the best."""
        results = self._measure(candidates)
        for attributes, found in zip(candidates, results, strict=False):
            best = self.score, len(self._changes(self.attributes)), len(self.attributes)
            if (found.score, len(self._changes(attributes)), len(attributes)) < best:
                self.score, self.attributes = found.score, attributes
        return results

    def _changes(self, attributes: Attributes) -> Attributes:
        return {name: how for name, how in attributes.items() if how != self._default[name]}

    def _step(self) -> bool:
        """Tries the next batches, and then all that helped. False: there is nothing to try, or no
        budget."""
        todo = sorted(self._moves(), key=self._order)
        batches = [b for _ in range(AT_ONCE) if (b := self._apart(todo, not self._together))]
        candidates: list[Attributes] = [self._with(batch) for batch in batches]
        results, saved = [*self._try(candidates)], dict[Move, float]()
        for batch, found in zip(batches, results, strict=False):
            self._tried |= {move: self._sizes(move[0]) for move in batch}
            for move in batch:  # by the sizes of functions unless it was alone
                region = self._region(move[0]) if found.sizes and len(batch) > 1 else ()
                smaller = (self._now.sizes.get(n, 0) - found.sizes.get(n, 0) for n in region)
                saved[move] = sum(smaller) if region else self._now.score - found.score
        best = sorted((move for move in saved if saved[move] > 0), key=lambda m: (-saved[m], m))
        together = self._with(self._apart(best))
        pairs = [
            *zip(self._try([together]), [together], strict=False),
            *zip(results, candidates, strict=False),
        ]
        for move in best:  # it meets a better one: try it after that
            del self._tried[move]
        score, attributes = min(pairs, key=lambda pair: pair[0].score, default=(self._now, {}))
        if score.score < self._now.score:
            self._now, self._held = score, attributes
        return bool(batches) and len(pairs) > len(candidates)

    # ---- Moves ----

    def _moves(self) -> Iterable[Move]:
        """What was not tried yet, or when the code around it had other sizes."""
        for name, default in self._default.items():
            for how in {NEVER, ALWAYS, default} - {self._held.get(name, "")}:
                if self._tried.get((name, how)) != self._sizes(name):
                    yield name, how

    def _order(self, move: Move) -> tuple[bool, bool, int, Move]:
        """New ones first; of static functions; and where the most copies would vanish."""
        copies = sum(self._functions[caller].calls[move[0]] for caller in self._callers[move[0]])
        size = (copies - 1) * self._functions[move[0]].size if move[1] == NEVER else 0
        return move in self._tried, not self._functions[move[0]].static, -size, move

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

    def _sizes(self, callee: str) -> object:
        return [self._now.sizes.get(name) for name in sorted(self._region(callee))]

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


class Source:
    """A source; its functions before LLVM's passes; how many compilations there were, and may be.
    Errors: ShmbridgeError."""

    def __init__(self, compiler: str, module: Module) -> None:
        self._compiler = os.path.abspath(compiler) if "/" in compiler else compiler
        self._rust = os.path.basename(compiler).startswith("rustc")
        self.module, self.used, self.limit, self._seconds = module, 0, math.inf, PLAIN
        self.cpu = 0.0  # seconds, of what has attributes
        plain = ["-Cno-prepopulate-passes"] if self._rust else ["-Xclang", "-disable-llvm-passes"]
        self._assembly = self._assembled(*plain)
        self.before = functions_of(self._assembly)

    def after(self) -> Functions:
        """Its functions after LLVM's passes."""
        began = time.monotonic()
        assembly = self._assembled()
        self._seconds = max(SHORTEST, SLOWER * (time.monotonic() - began))
        return functions_of(assembly)

    def _assembled(self, *flags: str) -> str:
        self.used += 1
        kept = tuple(word for word in self.module.flags if not word.startswith("--emit="))
        emit = ["--emit=llvm-ir"] if self._rust else ["-S", "-emit-llvm"]
        words = [self._compiler, "{flags}", *emit, *flags, "{module}", "-o", "{output}"]
        made = list[bytes]()

        def read(output: Path) -> float:
            made.append(output.read_bytes())
            return 0.0

        task = Task(words, scores={"assembly": read}, seconds=PLAIN)
        task.baseline(replace(self.module, flags=kept))
        return made[0].decode(errors="replace")

    def flags(self, file: str) -> tuple[str, ...]:
        """The flags with which the compiler reads a file of attributes."""
        flag = f"-forceattrs-csv-path={file}"
        return (f"-Cllvm-args={flag}",) if self._rust else ("-mllvm", flag)

    def compile(
        self, attributes: Attributes, to: str = "{output}", link: str = "", **scores: Score
    ) -> Mapping[str, float]:
        """Makes its object, or by a shell command the program of "{folder}/object". The scores."""
        kind, to = [] if self._rust else ["-c"], "{folder}/object" if link else to
        words = [self._compiler, "{flags}", *kind, "{module}", "-o", to]
        if link:
            words = ["sh", "-c", f'"$@" && cd {shlex.quote(os.getcwd())} && {link}', "sh", *words]
        with tempfile.NamedTemporaryFile("w", prefix="shmbridge-tune-") as file:
            file.write(file_text(attributes))
            file.flush()
            module = replace(self.module, flags=(*self.module.flags, *self.flags(file.name)))
            task = Task(words, scores=scores, seconds=PLAIN if link else self._seconds)
            if not attributes:  # must not fail
                return task.baseline(module)
            outcome = task.run(module)
            self.cpu += outcome.cpu
            return outcome.scores

    def measure(
        self, score: Score, key: bytes, jobs: int, progress: Callable[[], None], link: str
    ) -> Measure:
        """What measures candidates, so many at once, on which the results do not depend. They are
        stored by what they depend on, which is `key` beside the source."""
        said = "\0".join([self._assembly, self._compiler, *self.module.flags])
        name = hashlib.sha256(said.encode(errors="surrogateescape") + key).hexdigest()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "shmbridge/tune")
        cache.mkdir(parents=True, exist_ok=True)
        known = dict[str, Measured]()
        for line in (cache / name).open() if (cache / name).exists() else ():
            with suppress(ValueError, TypeError):  # a kill may have cut it
                text, total, sizes = json.loads(line)
                known[text] = Measured(float(total), {**sizes})

        def measured(attributes: Attributes) -> Measured:
            sizes = dict[str, float]()

            def scored(output: Path) -> float:
                with suppress(InvalidError):  # no ELF file
                    sizes.update(function_sizes(output))
                return score(output)

            found = self.compile(attributes, link=link, score=scored)
            progress()
            return Measured(found.get("score", math.inf), sizes)

        def several(candidates: Sequence[Attributes]) -> list[Measured]:
            new = [each for each in candidates if file_text(each) not in known]
            new = new[: int(max(0, min(self.limit - self.used, len(new))))]
            self.used += len(new)
            with ThreadPoolExecutor(jobs) as pool, (cache / name).open("a") as store:
                for each, found in zip(new, pool.map(measured, new), strict=True):
                    known[file_text(each)] = found
                    store.write(json.dumps([file_text(each), *found]) + "\n")
            return [known[t] for t in takewhile(known.__contains__, map(file_text, candidates))]

        return several

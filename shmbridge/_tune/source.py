"""Compiles a source with attributes, and scores what it makes."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from shmbridge._tune.functions import Function, file_text, functions_of
from shmbridge._tune.search import Attributes, Measure, Measured
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training import Module, Outcome, Task
from shmbridge.training.scores import Score, function_sizes

# Seconds of a plain compilation; and how many times as long a candidate may take, or these seconds.
PLAIN, SLOWER, SHORTEST = 600.0, 10, 10.0


class _Assembly(float):
    """A score that has the functions of the output."""

    functions: dict[str, Function]
    digest: str


def _assembly(output: Path) -> _Assembly:
    found = _Assembly()
    data = output.read_bytes()
    found.functions = functions_of(data.decode(errors="surrogateescape"))
    found.digest = hashlib.sha256(data).hexdigest()
    return found


class Source:
    """A source, and the compilations with which it is tuned. Errors: ShmbridgeError.

    Args:
        compiler: A clang or rustc.
        module: The source.
        progress: Called after each compilation.

    Attributes:
        before: Its functions before LLVM's passes.
        room: How many more compilations may start.
        used, cpu: Compilations so far, and their seconds of CPU.
    """

    def __init__(self, compiler: str, module: Module, progress: Callable[[], None]) -> None:
        self.module, self._compiler, self._progress = module, compiler, progress
        self._rust = os.path.basename(compiler).startswith("rustc")
        self.room, self.used, self.cpu = math.inf, 0, 0.0
        plain = ["-Cno-prepopulate-passes"] if self._rust else ["-Xclang", "-disable-llvm-passes"]
        assembly = self._functions(*plain)
        self.before, self._digest = assembly.functions, assembly.digest

    def after(self) -> dict[str, Function]:
        """Its functions after LLVM's passes."""
        return self._functions().functions

    def _functions(self, *flags: str) -> _Assembly:
        kept = tuple(word for word in self.module.flags if not word.startswith("--emit="))
        emit = ["--emit=llvm-ir"] if self._rust else ["-S", "-emit-llvm"]
        words = [self._compiler, "{flags}", *emit, *flags, "{module}", "-o", "{output}"]
        task = Task(words, scores={"": _assembly}, seconds=PLAIN)
        found: Any = self._needed(task, replace(self.module, flags=kept)).scores[""]
        assert isinstance(found, _Assembly)
        return found

    def _needed(self, task: Task, module: Module) -> Outcome:
        """Compiles, which must not fail."""
        outcome = self._counted(task.run(module))
        if not outcome.ok:
            why = (
                f"{outcome.kind} {outcome.signal or outcome.exit}: {outcome.stderr[-500:].strip()}"
            )
            raise ShmbridgeError(f"{module.name}: {why}: try {outcome.command}")
        return outcome

    def _counted(self, outcome: Outcome) -> Outcome:
        self.used, self.room, self.cpu = self.used + 1, self.room - 1, self.cpu + outcome.cpu
        self._progress()
        return outcome

    def flags(self, path: Path) -> tuple[str, ...]:
        """The flags with which the compiler reads a file of attributes."""
        flag = f"-forceattrs-csv-path={path}"
        return (f"-Cllvm-args={flag}",) if self._rust else ("-mllvm", flag)

    def _with(self, path: Path) -> Module:
        return replace(self.module, flags=(*self.module.flags, *self.flags(path)))

    def words(self, output: str = "{output}") -> list[str]:
        """A task's command that makes its object."""
        kind = [] if self._rust else ["-c"]
        return [self._compiler, "{flags}", *kind, "{module}", "-o", output]

    def compile(self, path: Path, output: Path) -> None:
        """Makes its object with a file of attributes."""
        self._needed(Task(self.words(str(output)), seconds=PLAIN), self._with(path))

    def link_words(self, link: str, objects: Sequence[Path], mine: Path) -> list[str]:
        """A task's command that compiles it, and links its object in the place of `mine`."""
        if "{objects}" not in link or "{output}" not in link:
            raise InvalidError(f"{link!r}: expected a command with {{objects}} and {{output}}")
        made = ['"$object"' if each == mine else shlex.quote(str(each)) for each in objects]
        link = link.replace("{objects}", " ".join(made)).replace("{output}", '"$output"')
        script = f'output=$1 object=$2; shift 2; "$@" && cd {shlex.quote(os.getcwd())} && {link}'
        here = "{folder}/object"
        return ["sh", "-c", script, "sh", "{output}", here, *self.words(here)]

    def measure(
        self, words: Sequence[str], score: Score, key: str, jobs: int, work: Path
    ) -> Measure:
        """What scores candidates by a task's command, so many at once. The results do not depend on
        that. They are stored, and a stored one takes no room. key: all that they depend on beside
        the source and its compiler."""
        task = Task(words, scores={"score": _with_sizes(score)}, seconds=PLAIN)
        store = _store("\0".join([self._digest, *self.words(), *self.module.flags, key]))
        known = _stored(store)

        def compiled(attributes: Attributes) -> Outcome:
            path = work / _digest(attributes)
            path.write_bytes(file_text(attributes, (), ""))
            return task.run(self._with(path))

        def several(candidates: Sequence[Attributes]) -> list[Measured]:
            new = [each for each in candidates if _digest(each) not in known]
            new = new[: int(max(0, min(self.room, len(new))))]
            if new == [{}]:
                outcomes = [self._needed(task, self.module)]
            else:
                with ThreadPoolExecutor(jobs) as pool:
                    outcomes = [self._counted(each) for each in pool.map(compiled, new)]
            for each, outcome in zip(new, outcomes, strict=True):
                found: Any = outcome.scores.get("score", Measured(math.inf))
                found.seconds = outcome.seconds
                known[_digest(each)] = found
                with store.open("a") as file:
                    line = [_digest(each), found, found.sizes, found.seconds]
                    file.write(json.dumps(line) + "\n")
            if plain := known.get(_digest({})):
                task.seconds = max(SHORTEST, SLOWER * plain.seconds)
            ended = itertools.takewhile(lambda each: _digest(each) in known, candidates)
            return [known[_digest(each)] for each in ended]

        return several


def _digest(attributes: Attributes) -> str:
    return hashlib.sha256(file_text(attributes, (), "")).hexdigest()


def _store(key: str) -> Path:
    """The file of the results with this key."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shmbridge" / "tune"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()}.jsonl"


def _stored(path: Path) -> dict[str, Measured]:
    """The results in a file of JSON lines; a kill may have cut the last one."""
    known = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        with suppress(ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            digest, score, sizes, seconds = json.loads(line)
            found = Measured(score)
            found.sizes = {str(name): float(size) for name, size in sizes.items()}
            found.seconds = float(seconds)
            known[str(digest)] = found
    return known


def _with_sizes(score: Score) -> Score:
    """The same score, with the sizes of functions if the output is an ELF file."""

    def function(output: Path) -> Measured:
        found = Measured(score(output))
        with suppress(InvalidError):
            found.sizes = function_sizes(output)
        return found

    return function

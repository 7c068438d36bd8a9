"""What a compiler does with a module, its limits, and its reward."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from shmbridge._jobs import supervised
from shmbridge._llvm import compilers, preload
from shmbridge._runner.urls import with_options
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training._compilation import SENT, Compilation, Outcome, OutcomeKind, label_of
from shmbridge.training._corpus import Module
from shmbridge.training.scores import Score

# seconds: a compiler waits for the trainer, or for a channel that another leaves, until its own
# time is over
CONNECT = 1e6
SECONDS = 60.0
PLACEHOLDER = re.compile(r"\{(?:module|output|url|folder)\}")


Reward: TypeAlias = Callable[[Outcome, Mapping[str, float]], float]


def relative_reduction(outcome: Outcome, baseline: Mapping[str, float]) -> float:
    """The relative reduction of the task's first score: 1 - (score + 0.01) / (baseline + 0.01), as
    in ml-compiler-opt.

    Args:
        outcome: The outcome, with the scores.
        baseline: The scores without advice.

    Returns:
        The reward: 0.1 for a score that is 10 % smaller, negative for a greater score.

    Raises:
        InvalidError: The task has no scores.
    """
    if not outcome.scores:
        raise InvalidError(
            "expected a task with scores, found none: give Task scores=, or a reward="
        )
    name, score = next(iter(outcome.scores.items()))
    return 1 - (score + 0.01) / (baseline[name] + 0.01)


class Task:
    """A command that compiles a module.

    In the command, `{module}` is the module's path, `{output}` the file to score, `{url}` the URL
    to ask, `{folder}` the work folder, and `{flags}` the module's flags, which otherwise follow the
    program. Without `{output}`, the command's stdout is scored. The compiler also gets the URL in
    $SHMBRIDGE_URL.

    Each compilation has a work folder, which is also $TMPDIR. The compiler runs there unless the
    module has a folder. The work folder and all processes of the compiler are removed when the
    outcome is known.

    Args:
        command: A list of words, or a text that is split as in a shell; no shell runs it.
        llvm: The decisions that an unmodified LLVM asks about: "inline", "evict", "priority", or
            several, separated by commas. "": the compiler asks by itself.
        include_default: Add `inlining_default`, LLVM's own decision, to the inliner's features
            (LLVM 22).
        defaults: The advice to use when the policy fails, by decision. Others use LLVM's own.
        limit: For bisecting: ask only about the first `limit` decisions of a compilation, counting
            all kinds together. LLVM makes the others: LLVM 22's own decision for inlining,
            otherwise `defaults`.
        scores: Functions of the output's path, by name. They may run in several threads at once.
        seconds: Time limit of a compilation, without waiting for a host of this process.
        memory: Limit of the bytes that all processes of a compiler use together; 4 GiB if not set.

    Raises:
        InvalidError: There is no such program, the command contains no module, or the compiler does
            not make these decisions.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        llvm: str = "",
        include_default: bool = False,
        defaults: Mapping[str, float] | None = None,
        limit: int | None = None,
        scores: Mapping[str, Score] | None = None,
        seconds: float = SECONDS,
        memory: int = supervised.MEMORY,
    ) -> None:
        self.words = shlex.split(command) if isinstance(command, str) else [*map(str, command)]
        if not isinstance(scores, Mapping | None):
            raise InvalidError(
                f'scores={scores!r}: expected functions by name: {{"size": text_size}}'
            )
        self.scores = dict(scores or {})
        self.seconds, self.memory = seconds, memory
        if not self.words:
            raise InvalidError("expected a command, found none")
        if shutil.which(self.words[0]) is None:
            raise InvalidError(f"expected a program in $PATH, found no {self.words[0]!r}")
        if not any("{module}" in word for word in self.words):
            raise InvalidError(f"expected {{module}} in the command, found none: {command!r}")
        if not seconds > 0 or not memory > 0:
            raise InvalidError(f"seconds={seconds}, memory={memory}: expected more than 0")
        if "{flags}" not in self.words:
            self.words.insert(1, "{flags}")
        if llvm and not compilers.is_compiler(os.path.basename(self.words[0])):
            raise InvalidError(
                f"llvm={llvm!r}: expected a command that begins with clang, clang++, opt, llc, "
                "rustc or ld.lld, or one of these with a version, without a wrapper before it; "
                f"found {self.words[0]!r}"
            )
        self._kind = compilers.kind_of(self.words[0]) if llvm else ""
        self._decisions = compilers.asked_of(self._kind, llvm.split(",")) if llvm else []
        self._include_default = include_default
        self._defaults = {decision: str(advice) for decision, advice in (defaults or {}).items()}
        for decision, advice in self._defaults.items():
            compilers.check_default(decision, advice)
        if not llvm and (include_default or defaults or limit is not None):
            raise InvalidError("include_default, defaults, limit: expected them with llvm=")
        if limit is not None and not 0 <= limit <= 2**62:
            raise InvalidError(f"limit={limit}: expected 0 to 2**62")
        self._limit = limit
        limited = limit is not None and compilers.tells_default(self.words[0])
        self._tells_default = include_default or limited
        self._baselines = dict[tuple[Module, bytes], dict[str, float]]()
        self._broken = set[Module]()  # that do not compile without advice

    @property
    def channels(self) -> int:
        """How many channels of a host one compilation takes at once, as far as that is known."""
        return max(1, len(self._decisions))

    def run(self, module: Module, url: str | None = None, label: str | None = None) -> Outcome:
        """Compiles a module, and waits for the outcome.

        Args:
            module: The module.
            url: The URL that the compiler asks. None: it does not ask and uses its own heuristics.
            label: The compiler's `request.label`. None: the module's name.

        Returns:
            The outcome. Every end of the compiler is an outcome, not an exception.

        Raises:
            NoHostError: There is no host at the URL.
        """
        return Compilations(self).run(module, url, label or label_of(module))

    def baseline(self, module: Module) -> dict[str, float]:
        """The scores without advice, once per content of the file: changed headers are not noticed.

        Args:
            module: The module.

        Returns:
            The scores, by name.

        Raises:
            ShmbridgeError: The compiler fails even without advice. The text contains the command.
            OSError: The module cannot be read.
        """
        return Compilations(self).baseline(module)

    def _start(self, module: Module, url: str | None, label: str) -> Compilation:
        """Starts to compile a module; arguments as `run`."""
        known = url and with_options(url, label=label)  # as somebody types it again
        folder = supervised.new_folder()
        again, environment = self._command(module, known, folder), dict[str, str]()
        words = again
        if known:
            asks = with_options(known, connect_timeout=f"{CONNECT:.0f}", deadline="inf")
            words, environment = self._asking(self._command(module, asks, folder), asks, folder)
        job = supervised.SupervisedProcess(
            words,
            folder=folder,
            environment=environment,
            files={} if self._limit is None else {"limit": preload.questions_left(self._limit)},
            cwd=module.folder,
            stdout=not any("{output}" in word for word in self.words),
            seconds=self.seconds,
            memory=self.memory,
            url=known or "",
            label=label,
        )
        line = self._again(supervised.quoted(again, folder), module, known)
        return Compilation(module, job, self.scores, line, asks=bool(url))

    def _command(self, module: Module, url: str | None, folder: Path) -> list[str]:
        """The words. url: the compiler asks there."""
        values = {
            "{module}": str(module.path),
            "{output}": f"{folder}/output",
            "{url}": url or "",
            "{folder}": str(folder),
        }
        words: list[str] = []
        for word in self.words:
            placed = PLACEHOLDER.sub(lambda found: values[found[0]], word)
            words += module.flags if word == "{flags}" else [placed]
        return words

    def _asking(self, words: list[str], url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
        """The words and variables that make a compiler ask."""
        if not self._kind:
            return words, {"SHMBRIDGE_URL": url}
        bases = {decision: compilers.base_in_compiler(decision) for decision in self._decisions}
        left = None if self._limit is None else f"{folder}/limit"
        there = preload.environment(url, f"{folder}/report", self._defaults, left)
        words = compilers.with_flags(words, self._kind, bases, self._tells_default, pipes=False)
        return words, there

    def _again(self, typed: str, module: Module, url: str | None) -> str:
        """A line for a shell that does the same again, where `typed` compiles."""
        if url and self._kind:
            options = ["--llvm", ",".join(self._decisions), "--connect", url]
            options += ["--include-default"] if self._include_default else []
            for decision, advice in self._defaults.items():
                options += ["--default", f"{decision}={advice}"]
            options += [] if self._limit is None else ["--limit", str(self._limit)]
            typed = f"shmbridge run {shlex.join(options)} -- {typed}"
        elif url:
            typed = f"SHMBRIDGE_URL={shlex.quote(url)} {typed}"
        where = shlex.quote(str(module.folder)) if module.folder else '"$W"'
        return f"W=$(mktemp -d) && cd {where} && {typed}"


class Compilations:
    """Compilations of a task that end together."""

    def __init__(self, task: Task) -> None:
        self._task, self._lock, self._ended = task, threading.Lock(), False
        self._running: set[Compilation] = set()

    def start(self, module: Module, url: str | None, label: str) -> Compilation:
        """Starts one; arguments as `Task.run`."""
        compilation = self._task._start(module, url, label)
        with self._lock:
            self._running.add(compilation)
            if self._ended:  # meanwhile
                compilation.job.end()
        return compilation

    def run(self, module: Module, url: str | None, label: str) -> Outcome:
        if self._ended:
            return Outcome(OutcomeKind.ENDED, module.name)
        compilation = self.start(module, url, label)
        try:
            with compilation.job:
                outcome = compilation.finish()
        finally:
            with self._lock:
                self._running.discard(compilation)
        return self.blamed(compilation, outcome)

    def blamed(self, compilation: Compilation, outcome: Outcome) -> Outcome:
        """The outcome, as the advice's failure if the module compiles without."""
        module, broken = compilation.module, self._task._broken
        failed = outcome.kind in (OutcomeKind.EXIT_STATUS, OutcomeKind.SIGNAL)
        if not failed or not compilation.advised or outcome.signal in SENT or module in broken:
            return outcome
        try:
            self.baseline(module)
        except (ShmbridgeError, OSError):  # it is the user's, or all is to end
            broken |= set() if self._ended else {module}
            return outcome
        return replace(outcome, kind=OutcomeKind.ADVICE)

    def baseline(self, module: Module) -> dict[str, float]:
        key = module, hashlib.sha256(module.path.read_bytes()).digest()
        found = self._task._baselines.get(key)
        if found is None:
            outcome = self.run(module, None, label_of(module))
            if not outcome.ok:
                raise ShmbridgeError(
                    f"{module.name}: no baseline: {outcome.kind} {outcome.signal or outcome.exit}: "
                    f"{outcome.stderr[-500:].strip()}: try {outcome.command}"
                )
            found = self._task._baselines[key] = dict(outcome.scores)
        return dict(found)

    def end(self) -> None:
        """Asks all to end, without waiting. No other one starts after it."""
        with self._lock:
            self._ended = True
            for compilation in self._running:
                compilation.job.end()

    def close(self) -> None:
        self.end()
        for compilation in list(self._running):
            compilation.job.close()

"""What `shmbridge tune` compiles, with which clang, and how it scores the result."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shmbridge._jobs import supervised
from shmbridge._llvm import compilers
from shmbridge._llvm.plan import url_of
from shmbridge._llvm.preload import Preload
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training import Corpus, Module, Task
from shmbridge.training._corpus import entry
from shmbridge.training.scores import Score, function_sizes, object_size, printed, text_size

LONGEST = 600.0  # seconds for a plain compilation, and for a link
SCORES: dict[str, Score] = {"text": text_size, "object": object_size}
REMARKS = "remarks"  # LLVM's remarks on its questions, beside an object
ABOUT_QUESTIONS = ["-foptimization-record-passes=inline-ml"]
QUESTION = re.compile(r"^Function: +(\S+)\nArgs:\n  - Callee: +(\S+)", re.MULTILINE)
QUOTES = "'\""
NUMBER = r"([-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)"


class Measure(NamedTuple):
    """A score: its name, all that it depends on but the object, and a function of the object."""

    name: str
    key: str
    function: Score


class Parts(float):
    """A score of an object, and what is known of it.

    Attributes:
        functions: The bytes of its functions, by name.
        calls: Callers and callees of LLVM's questions, in their order.
    """

    functions: Mapping[str, float] = {}
    calls: Sequence[tuple[str, str]] = ()


def with_parts(score: Score) -> Score:
    """The same score, of an object with remarks beside it."""

    def function(output: Path) -> Parts:
        found = Parts(score(output))
        remarks = output.with_name(REMARKS)
        if remarks.exists():
            found.functions = function_sizes(output)
            text = remarks.read_text(errors="replace")
            found.calls = [(a.strip(QUOTES), b.strip(QUOTES)) for a, b in QUESTION.findall(text)]
        return found

    return function


def measure_of(text: str) -> Measure:
    """A score by its name, or a command with {output} that prints a number. Errors:
    InvalidError."""
    if text in SCORES:
        return Measure(text, text, SCORES[text])
    if "{output}" not in text:
        expected = ", ".join(SCORES)
        raise InvalidError(f"{text!r}: expected {expected}, or a command that contains {{output}}")
    return Measure(text, text, printed(text, NUMBER))


def run(command: Sequence[str], folder: Path | None, environment: Mapping[str, str] = {}) -> bytes:
    """What a compiler prints. Errors: ShmbridgeError."""
    report, said = supervised.run(command, cwd=folder, environment=environment, seconds=LONGEST)
    if report.status:
        why = report.unstarted or report.limit or report.stderr[-500:].strip()
        raise ShmbridgeError(f"{shlex.join(command)} failed: {why}")
    return said


class Compiler:
    """A clang that sends its inliner's own decisions. Errors: InvalidError.

    Attributes:
        path: Its name or path.
        version: What it says of itself.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        if compilers.kind_of(path) != "clang" or not compilers.tells_default(path):
            raise InvalidError(
                f"{path}: expected clang of LLVM 22 or later, whose inliner sends its own decisions"
            )
        report, said = supervised.version_of(path)
        self.version = said.decode(errors="replace").partition("\n")[0]
        if report.status or not self.version:
            raise InvalidError(f"{path} --version failed: {report.unstarted or report.stderr}")

    def task(self, score: Measure) -> Task:
        """The task that compiles a source with it, asking about inlining. A score of code has
        `Parts`."""
        command = [self.path, "{flags}", "-c", "{module}", "-o", "{output}"]
        function = score.function
        if score.name in SCORES:
            command += [f"-foptimization-record-file={{folder}}/{REMARKS}", *ABOUT_QUESTIONS]
            function = with_parts(function)
        return Task(
            command,
            llvm="inline",
            include_default=True,
            scores={"score": function},
            seconds=LONGEST,
        )

    def words(self, module: Module) -> list[str]:
        """The command that compiles a source, without its output."""
        return [self.path, *module.flags, "-c", str(module.path)]

    def digest(self, module: Module, score: str) -> str:
        """A hash of all that the results of a search depend on: the source as preprocessed, the
        arguments, the compiler, and the score. Errors: ShmbridgeError."""
        words = [*self.words(module), "-E"]
        text = run(words, module.folder)
        key = "\0".join(("4", self.version, score, *words)).encode(errors="surrogateescape")
        return hashlib.sha256(key + b"\0" + text).hexdigest()

    def run(self, words: Sequence[str], module: Module, plan: Path | None = None) -> None:
        """Compiles a source with further arguments, and with a plan if there is one. Errors:
        ShmbridgeError."""
        command = [self.path, *module.flags, str(module.path), *words]
        if not plan:
            run(command, module.folder)
            return
        with plan.open("rb") as file, closing(Preload(url_of(file.fileno()), {}, None)) as channel:
            bases = {"inline": channel.base("inline")}
            command = compilers.with_flags(command, "clang", bases, True, pipes=False)
            run(command, module.folder, channel.environment)
            counts = channel.counts()
        if why := next((count.why for count in counts if count.defaulted), ""):
            raise ShmbridgeError(f"{plan}: {why}")


class Linker:
    """Scores an object by the program that it makes together with the other sources' objects.

    Args:
        compiler: The compiler.
        command: What links: {objects} are the objects, {output} is the program.
        modules: The sources, which are compiled plainly at first.
        folder: A folder for the objects.
    """

    def __init__(
        self, compiler: Compiler, command: str, modules: Sequence[Module], folder: Path
    ) -> None:
        self._compiler, self._command, self._words = compiler, command, shlex.split(command)
        if "{objects}" not in self._words or "{output}" not in self._words:
            raise InvalidError(f"{command!r}: expected a command with {{objects}} and {{output}}")
        self._objects = {module: folder / f"{n}.o" for n, module in enumerate(modules)}
        for module in modules:
            self.compile(module, None)

    def compile(self, module: Module, plan: Path | None) -> None:
        """Compiles a source's object again, with its plan."""
        self._compiler.run(["-c", "-o", str(self._objects[module])], module, plan)

    def measure(self, module: Module, score: Measure) -> Measure:
        """The score of the program as a score of this source's object."""
        others = [p.read_bytes() for other, p in self._objects.items() if other is not module]
        digests = "".join(hashlib.sha256(data).hexdigest() for data in others)
        objects = dict(self._objects)

        def function(output: Path) -> float:
            program = output.with_name("program")
            words: list[str] = []
            for word in self._words:
                made = {**objects, module: output}.values()
                words += map(str, made) if word == "{objects}" else [word]
            run([word.replace("{output}", str(program)) for word in words], Path.cwd())
            return score.function(program)

        return Measure(score.name, f"{score.key}\0{self._command}\0{digests}", function)


def modules_of(words: Sequence[str], commands: Path | None) -> list[Module]:
    """The sources that a compiler's arguments name, or those of a compile_commands.json, whose
    flags come before the arguments. Each source once. Errors: InvalidError, OSError."""
    arguments = words[1:]
    if commands:
        found = Corpus.from_compile_commands(commands)
        modules = [replace(each, flags=(*each.flags, *arguments)) for each in found]
    else:
        pairs = zip(words, arguments, strict=False)
        sources = [w for before, w in pairs if before != "-o" and compilers.source_of([w])]
        kept = [word for word in words if word not in sources]
        modules = []
        for source in sources:
            command = {"directory": Path.cwd(), "file": source, "arguments": kept}
            modules.append(Module(source, *entry(command)))
    if missing := [str(module.path) for module in modules if not module.path.is_file()] or (
        [] if modules else ["none"]
    ):
        raise InvalidError(f"{shlex.join(words)}: expected source files, found {missing[0]}")
    return list({module.path: module for module in reversed(modules)}.values())[::-1]

"""shmbridge tune: attributes of functions with which a compiler makes smaller code."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shmbridge._llvm import compilers
from shmbridge._tune.functions import callees, file_text, read_file
from shmbridge._tune.search import Search
from shmbridge._tune.source import Source
from shmbridge.cli._option_types import EXISTING_FILE, argument, option, takes
from shmbridge.cli._run import compiler_command
from shmbridge.cli._text import one_line
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training import Corpus, Module
from shmbridge.training.scores import Score, object_size, printed, text_size

SCORES: dict[str, Score] = {"text": text_size, "object": object_size}
NUMBER = r"([-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)"
ENDING = ".csv"


@dataclass(frozen=True)
class Options:
    """The command line."""

    output: Path = option(
        "The file to write, or a folder for the files of several sources.",
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FILE.csv|FOLDER",
    )
    score: str = option(
        "What to make smaller: text (bytes of .text), object (bytes of the output), or a command "
        "that contains {output} and prints a number. It must be the same for the same output.",
        default="text",
        metavar="SCORE",
    )
    jobs: int | None = option(
        "How many compilers run at once. The result does not depend on it.  [default: one for "
        "each CPU]",
        "-j",
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
    )
    compilations: int | None = option(
        "Stop after N compilations of all sources together. The same command again continues.  "
        "[default: when nothing helps]",
        type=click.IntRange(1),
        metavar="N",
    )
    commands: Path | None = option(
        "Tune the sources of a compile_commands.json, with their own flags before ARGUMENTS.",
        type=EXISTING_FILE,
        metavar="FILE",
    )
    link: str | None = option(
        "Score the program that a shell command makes of {objects} as {output}.",
        metavar="COMMAND",
    )
    check: bool = option("Only name the functions in the files that the sources do not have.")
    command: tuple[str, ...] = argument(
        nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMPILER [ARGUMENTS]..."
    )

    def file(self, source: Source) -> Path:
        """The file of a source: in the folder, where the source is below this one."""
        if self.output.suffix == ENDING:
            return self.output
        name = os.path.relpath(source.module.path)
        return self.output / f"{source.module.name if name.startswith('..') else name}{ENDING}"

    def score_of(self) -> Score:
        """The score. Errors: InvalidError."""
        if self.score not in SCORES and "{output}" not in self.score:
            expected = f"{', '.join(SCORES)}, or a command that contains {{output}}"
            raise InvalidError(f"{self.score!r}: expected {expected}")
        return SCORES.get(self.score) or printed(self.score, NUMBER)


def modules_of(words: Sequence[str], commands: Path | None) -> list[Module]:
    """The sources among a compiler's arguments, or those of a compile_commands.json, whose flags
    come before the arguments. Each source once. Errors: InvalidError."""
    pairs = [(a, b) for a, b in zip(words, words[1:], strict=False) if "-o" not in (a, b)]
    sources = [word for _, word in pairs if compilers.source_of([word])]
    flags = tuple(word for _, word in pairs if word not in (*sources, "-c"))
    if commands:
        found = [
            replace(each, flags=(*each.flags, *flags))
            for each in Corpus.from_compile_commands(commands)
        ]
    else:
        found = [Module(source, Path(source), flags, Path.cwd()) for source in sources]
    missing = [module.name for module in found if not module.path.is_file()]
    if missing or not found:
        raise InvalidError(f"expected source files, found {(*missing, 'none')[0]}")
    return list({module.path: module for module in reversed(found)}.values())[::-1]


def change(before: float, after: float) -> str:
    """Two scores, and the relative change."""
    relative = f" ({(after - before) / before:+.2%})" if before else ""
    return f"{before:g} to {after:g}{relative}"


class Tuning:
    """The searches of one command, each with its part of the budget."""

    def __init__(self, options: Options, sources: Sequence[Source], work: Path) -> None:
        self._options, self._sources, self._work = options, sources, work
        self._objects = [work / f"{at}.o" for at in range(len(sources))]
        self.before = self.after = 0.0

    def run(self) -> None:
        """Searches the sources one after the other."""
        linked, nothing = self._options.link, self._work / "nothing"
        nothing.touch()
        for source, made in zip(self._sources, self._objects, strict=True):
            if linked:
                source.compile(nothing, made)
        weights = [len(callees(source.before)) for source in self._sources]
        for at, source in enumerate(self._sources):
            left = (self._options.compilations or math.inf) - sum(s.used for s in self._sources)
            source.room = max(1, left * weights[at] / max(1, sum(weights[at:])))
            self._tune(source, self._objects[at])
            if linked:
                source.compile(self._options.file(source), self._objects[at])

    def _tune(self, source: Source, mine: Path) -> None:
        """Searches for one source, and writes its file."""
        options, words, file = self._options, source.words(), self._options.file(source)
        key = options.score
        if options.link:
            words = source.link_words(options.link, self._objects, mine)
            others = [each.read_bytes() for each in self._objects if each != mine]
            key += options.link + hashlib.sha256(b"".join(others)).hexdigest()
        jobs = options.jobs or len(os.sched_getaffinity(0))
        measure = source.measure(words, options.score_of(), key, jobs, self._work)
        after = source.after() if callees(source.before) and source.room > 2 else {}
        search = Search(source.before, after, measure, options.score in SCORES)
        try:
            search.run()
        finally:
            if search.plain < math.inf:
                said = f"{options.score}: {change(search.plain, search.score)}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(file_text(search.attributes, search.changed, said))
                click.echo(f"{file}: {said} by {len(search.changed)} functions", err=True)
                self.after = search.score + (0 if options.link else self.after)
                self.before = (
                    self.before if options.link and self.before else self.before + search.plain
                )


@click.command(context_settings={"allow_interspersed_args": False})
@takes(Options)
def tune(options: Options) -> None:
    """Search attributes of functions, noinline and alwaysinline, with which a clang or rustc makes
    smaller code, and write a file for each source that the plain compiler reads.

    It compiles in a separate folder; the command's own output is not written. A file never makes
    its score larger. After Ctrl-C the files have the best attributes so far, and the same command
    continues, because
    results are stored.
    """
    _, words = compiler_command.split(options.command)
    modules = modules_of(words, options.commands)
    if options.output.suffix == ENDING and len(modules) > 1:
        raise click.UsageError(f"-o {options.output}: expected a folder for {len(modules)} sources")
    compiler = os.path.abspath(words[0]) if "/" in words[0] else words[0]
    console, status, sources = Console(stderr=True), 0, list[Source]()
    columns = [BarColumn(), MofNCompleteColumn(), TextColumn("compilations"), TimeElapsedColumn()]
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        tempfile.TemporaryDirectory(prefix="shmbridge-tune-") as work,
    ):
        shown = bar.add_task("", total=options.compilations)
        for module in modules:
            try:
                sources.append(Source(compiler, module, lambda: bar.advance(shown)))
            except ShmbridgeError as error:
                click.echo(f"shmbridge: not tuned: {one_line(error)}", err=True)
                status = 1
        if options.check:
            raise SystemExit(1 if sum(gone(options.file(s), s) for s in sources) else status)
        tuning = Tuning(options, sources, Path(work))
        try:
            tuning.run()
        except KeyboardInterrupt:
            status = 130
    if not tuning.before:
        raise click.ClickException("nothing was tuned: allow more compilations")
    used = (
        f"{sum(s.used for s in sources)} compilations, {sum(s.cpu for s in sources):.0f} s of CPU"
    )
    flags = shlex.join(sources[0].flags(options.file(sources[0])))
    click.echo(f"{change(tuning.before, tuning.after)} with {used}. Compile with {flags}", err=True)
    raise SystemExit(status)


def gone(file: Path, source: Source) -> int:
    """Prints the functions that a file names and its source does not have. Their number."""
    names = read_file(file.read_bytes()).keys() - source.before.keys()
    for name in sorted(names):
        click.echo(f"{file}: {source.module.name} has no function {name}")
    return len(names)

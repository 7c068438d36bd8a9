"""shmbridge tune: attributes of functions with which a compiler makes smaller code."""

from __future__ import annotations

import math
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from shmbridge._tune import Search, Source, callees, file_text
from shmbridge.cli._option_types import EXISTING_FILE, argument, option, takes
from shmbridge.errors import InvalidError
from shmbridge.training import Corpus, Module
from shmbridge.training.scores import Score, object_size, printed, text_size

SCORES: dict[str, Score] = {"text": text_size, "object": object_size}
NUMBER = r"([-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)"
SOURCE = re.compile(r".*\.([cimC]|cc|cpp|cxx|c\+\+|ii|mm|rs|ll|bc)")
OUTPUT, COUNT = click.Path(path_type=Path), click.IntRange(1)


@dataclass(frozen=True)
class Options:
    """The command line."""

    output: Path = option(
        "A file to write for one source, FILE.csv, or a folder.", "-o", type=OUTPUT, required=True
    )
    score: str = option(
        "What to make smaller: text (bytes of .text), object (bytes of the output), or a command "
        "that contains {output} and prints a number. It must be the same for the same output.",
        default="text",
    )
    jobs: int | None = option("Compilers at once.  [default: CPUs]", "-j", "--jobs", type=COUNT)
    compilations: int | None = option(
        "Stop after so many compilations of all sources. The same command continues.", type=COUNT
    )
    commands: Path | None = option(
        "A compile_commands.json to tune, with its flags before ARGUMENTS.", type=EXISTING_FILE
    )
    link: str = option(
        "Score the program that this shell command makes of {objects} as {output}.", default=""
    )
    check: bool = option("Only name the functions in the files that the sources do not have.")
    command: tuple[str, ...] = argument(
        nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMPILER [ARGUMENTS]..."
    )

    def file(self, source: Source) -> Path:
        """The file of a source: in the folder, where the source is below this one."""
        name = os.path.relpath(source.module.path)
        name = source.module.name if name.startswith("..") else name
        return self.output if self.output.suffix == ".csv" else self.output / f"{name}.csv"


def modules_of(words: Sequence[str], commands: Path | None) -> list[Module]:
    """The sources among a compiler's arguments, or those of a compile_commands.json, whose flags
    come before the arguments. Each source once. Errors: InvalidError."""
    pairs = [(a, b) for a, b in zip(("", *words), words, strict=False) if "-o" not in (a, b)]
    sources = [word for _, word in pairs if SOURCE.fullmatch(word)]
    flags = tuple(word for _, word in pairs if word not in (*sources, "-c"))
    found = [Module(source, Path(source), flags, Path.cwd()) for source in sources]
    if commands:
        corpus = Corpus.from_compile_commands(commands)
        found = [replace(each, flags=(*each.flags, *flags)) for each in corpus]
    if not found:
        raise InvalidError("expected source files, found none")
    return list({module.path: module for module in reversed(found)}.values())[::-1]


@click.command(context_settings={"allow_interspersed_args": False})
@takes(Options)
def tune(options: Options) -> None:
    """Search the attributes of functions that make code smaller.

    It compiles with clang or rustc and tries noinline and alwaysinline, then writes a file for each
    source, which the plain compiler reads.

    It compiles in a separate folder; the command's own output is not written. A file never makes
    its score larger. After Ctrl-C the files have the best attributes so far, and the same command
    continues, because results are stored.
    """
    gone, (compiler, *words) = 0, options.command
    sources = [Source(compiler, each) for each in modules_of(words, options.commands)]
    if options.output.suffix == ".csv" and len(sources) > 1:
        raise click.UsageError(f"-o {options.output}: expected a folder for {len(sources)} sources")
    if options.check:
        for file, source in ((options.file(source), source) for source in sources):
            lines = (line.partition(",") for line in file.read_text().splitlines())
            named = {name for name, comma, _ in lines if comma}
            for name in sorted(named - source.before.keys()):
                click.echo(f"{file}: {source.module.name} has no function {name}")
                gone = 1
        raise SystemExit(gone)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="shmbridge-tune-") as work,
        Progress(console=console, disable=not console.is_terminal) as bar,
    ):
        shown = bar.add_task("compilations", total=options.compilations)
        objects = [f"{work}/{at}.o" for at in range(len(sources))]
        said = tuned(options, sources, objects, lambda: bar.advance(shown))
    flags = shlex.join(sources[0].flags(str(options.file(sources[0]))))
    used = sum(source.used for source in sources)
    cost = f"{used} compilations, {sum(source.cpu for source in sources):.0f} s of CPU"
    click.echo(f"{said} with {cost}. Compile with {flags}", err=True)


def tuned(
    options: Options, sources: Sequence[Source], objects: Sequence[str], done: Callable[[], None]
) -> str:
    """Searches the sources one after the other, and writes their files. The change of all."""
    score = SCORES.get(options.score) or printed(options.score, NUMBER)
    jobs, link = options.jobs or len(os.sched_getaffinity(0)), ""
    for source, made in zip(sources, objects, strict=True) if options.link else ():
        source.compile({}, made)
    found, weights = list[Search](), [len(callees(source.before)) for source in sources]
    for at, source in enumerate(sources):
        left = (options.compilations or math.inf) - sum(each.used for each in sources)
        source.limit = source.used + max(2, left * weights[at] / (sum(weights[at:]) or 1))
        key = f"{options.score}\0{options.link}".encode()
        if options.link:
            key += b"".join(Path(each).read_bytes() for each in objects if each != objects[at])
            placed = [*objects[:at], "{folder}/object", *objects[at + 1 :]]
            link = options.link.replace("{objects}", " ".join(placed))
        measure = source.measure(score, key, jobs, done, link)
        search = Search(source.before, source.after(), measure, options.score in SCORES)
        found.append(search)
        try:
            search.run()
        finally:
            if search.plain < math.inf:
                file, said = options.file(source), f"{options.score}: {change([search])}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(file_text(search.attributes, said), errors="replace")
                click.echo(f"{file}: {said}", err=True)
        if link:
            source.compile(search.attributes, objects[at])
    return change(found, link=bool(link))


def change(found: Sequence[Search], link: bool = False) -> str:
    """The scores without attributes, and with them: of all objects, or of the linked program."""
    before = sum(search.plain for search in (found[:1] if link else found))
    after = sum(search.score for search in (found[-1:] if link else found))
    return f"{before:g} to {after:g} ({(after - before) / (before or 1):+.2%})"

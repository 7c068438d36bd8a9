"""shmbridge tune: attributes of functions with which a compiler makes smaller code."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from shmbridge._tune import Attributes, Measured, Search, callees, file_text, functions_of
from shmbridge.cli._option_types import EXISTING_FILE, argument, option, takes
from shmbridge.errors import InvalidError
from shmbridge.training import Corpus, Module, Task
from shmbridge.training.scores import Score, function_sizes, printed, text_size

SECONDS = 600.0  # for a compilation
SCORES: dict[str, Score] = {"text": text_size, "object": os.path.getsize}
NUMBER = r"([-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)"
SOURCE = re.compile(r".*\.([cimC]|cc|cpp|cxx|c\+\+|ii|mm|rs|ll|bc)")
FOLDER, COUNT = click.Path(file_okay=False, path_type=Path), click.IntRange(1)


@dataclass(frozen=True)
class Options:
    output: Path = option("The folder of the files.", "-o", type=FOLDER, required=True)
    score: str = option(
        "What to make smaller: text (bytes of .text), object (bytes of the output), or a command "
        "that contains {output} and prints a number. It must be the same for the same output.",
        default="text",
    )
    jobs: int | None = option("Compilers at once.  [default: CPUs]", "-j", "--jobs", type=COUNT)
    compilations: int | None = option("Stop after so many, of all sources.", type=COUNT)
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


def modules_of(options: Options) -> list[Module]:
    """The sources among a compiler's arguments, or those of a compile_commands.json, whose flags
    come before the arguments. Each source once. Errors: InvalidError."""
    pairs = [pair for pair in pairwise(options.command) if "-o" not in pair]
    sources = [word for _, word in pairs if SOURCE.fullmatch(word)]
    flags = tuple(word for _, word in pairs if word not in (*sources, "-c"))
    found = [Module(source, Path(source), flags, Path.cwd()) for source in sources]
    if options.commands:
        corpus = Corpus.from_compile_commands(options.commands)
        found = [replace(each, flags=(*each.flags, *flags)) for each in corpus]
    return [*Corpus({module.path: module for module in found}.values())]


class Source:
    """A source; its functions before LLVM's passes; its file of attributes; its latest object; the
    seconds of CPU of its compilations, and how many there may be. Errors: ShmbridgeError."""

    def __init__(self, options: Options, module: Module, folder: str, bar: Progress) -> None:
        compiler, name = options.command[0], os.path.relpath(module.path).replace("../", "")
        self._compiler = os.path.abspath(compiler) if "/" in compiler else compiler
        self._rust = os.path.basename(compiler).startswith("rustc")
        flags = tuple(word for word in module.flags if not word.startswith("--emit="))
        self._options, self.module, self._bar = options, replace(module, flags=flags), bar
        self.file = options.output / f"{name}.csv"
        self.made = f"{folder}/{name.replace('/', ' ')}.o"
        self.seconds, self.limit = list[float](), math.inf
        plain = ["-Cno-prepopulate-passes"] if self._rust else ["-Xclang", "-disable-llvm-passes"]
        self._assembly = self._assembled(*plain)
        self.before = functions_of(self._assembly)

    def _assembled(self, *flags: str) -> str:
        emit = ["--emit=llvm-ir"] if self._rust else ["-S", "-emit-llvm"]
        self.compile({}, self.keep, "", *emit, *flags)
        return Path(self.made).read_text(errors="replace")

    def keep(self, output: Path) -> float:
        """A score that only keeps the output."""
        return float(os.path.getsize(shutil.copy(output, self.made)))

    def flags(self, file: str) -> tuple[str, ...]:
        """The flags with which the compiler reads a file of attributes."""
        flag = f"-forceattrs-csv-path={file}"
        return (f"-Cllvm-args={flag}",) if self._rust else ("-mllvm", flag)

    def gone(self) -> list[str]:
        """A line for each function in its file that it does not have."""
        lines = self.file.read_text(errors="replace").splitlines()
        names = {line.rpartition(",")[0] for line in lines}
        where = f"{self.file}: {self.module.name} has no function"
        return [f"{where} {name}\n" for name in sorted(names - self.before.keys() - {""})]

    def compile(self, attributes: Attributes, score: Score, link: str = "", *emit: str) -> float:
        """Makes its object, or by a shell command the program of it. The score, or math.inf if it
        does not compile with attributes."""
        what = emit or ["--emit=obj" if self._rust else "-c"]
        to = "{folder}/object" if link else "{output}"
        words = [self._compiler, "{flags}", *what, "{module}", "-o", to]
        if link:
            words = ["sh", "-c", f'"$@" && cd {shlex.quote(os.getcwd())} && {link}', "sh", *words]
        task = Task(words, scores={"": score}, seconds=SECONDS)
        with tempfile.NamedTemporaryFile("w", prefix="shmbridge-tune-") as file:
            file.write(file_text(attributes))
            file.flush()
            module = replace(self.module, flags=(*self.module.flags, *self.flags(file.name)))
            outcome = task.run(module)
            self.seconds.append(outcome.cpu)
            self._bar.advance(self._bar.task_ids[0])
            wrong = not attributes and not outcome.ok  # which baseline says
            return (task.baseline(module) if wrong else outcome.scores).get("", math.inf)

    def search(self, sources: Sequence[Source]) -> Search:
        """A search of its attributes; of the score of a linked program of all sources. Results are
        stored by what they depend on."""
        options, jobs = self._options, self._options.jobs or len(os.sched_getaffinity(0))
        score = SCORES.get(options.score) or printed(options.score, NUMBER)
        objects = [
            "{folder}/object" if each is self else shlex.quote(each.made) for each in sources
        ]
        link = options.link.replace("{objects}", " ".join(objects))
        said = [self._assembly, self._compiler, *self.module.flags, options.score, options.link]
        key = hashlib.sha256("\0".join(said).encode(errors="surrogateescape"))
        for each in sources if link else ():
            key.update(Path(each.made).read_bytes())
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "shmbridge/tune")
        cache.mkdir(parents=True, exist_ok=True)
        stored, known = cache / key.hexdigest(), dict[str, Measured]()
        for line in stored.open(errors="replace") if stored.exists() else ():
            with suppress(ValueError, TypeError):  # a kill may have cut it
                text, total, sizes = json.loads(line)
                known[text] = Measured(float(total), {**sizes})

        def measured(attributes: Attributes) -> Measured:
            sizes = dict[str, float]()

            def scored(output: Path) -> float:
                if score in SCORES.values():
                    with suppress(InvalidError):  # no ELF file
                        sizes.update(function_sizes(output))
                return score(output)

            return Measured(self.compile(attributes, scored, link=link), sizes)

        def several(candidates: Sequence[Attributes]) -> list[Measured]:
            new = [each for each in candidates if file_text(each) not in known]
            new = new[: int(max(0, min(self.limit - len(self.seconds), len(new))))]
            with ThreadPoolExecutor(jobs) as pool, stored.open("a") as store:
                for each, found in zip(new, pool.map(measured, new), strict=True):
                    known[file_text(each)] = found
                    store.write(json.dumps([file_text(each), *found]) + "\n")
            return [known[t] for t in takewhile(known.__contains__, map(file_text, candidates))]

        after = functions_of(self._assembled()) if callees(self.before) else {}
        return Search(self.before, after, several)


@click.command(context_settings={"allow_interspersed_args": False})
@takes(Options)
def tune(options: Options) -> None:
    """Search the attributes of functions that make code smaller.

    It tries noinline and alwaysinline, and writes a file for each source that clang or rustc reads.

    A file never makes its score larger. The command's own output is not written. After Ctrl-C the
    files have the best attributes so far, and the same command continues.
    """
    bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
    bar.add_task("compilations", total=options.compilations)
    with tempfile.TemporaryDirectory(prefix="shmbridge-tune-") as work, bar:
        sources = [Source(options, module, work, bar) for module in modules_of(options)]
        if options.check:
            gone = [line for source in sources for line in source.gone()]
            click.echo("".join(gone), nl=False)
            raise SystemExit(bool(gone))
        before, after = tuned(options, sources)
    seconds = [each for source in sources for each in source.seconds]
    cost = f"{len(seconds)} compilations, {sum(seconds):.0f} s of CPU"
    said = f"{before:g} to {after:g} ({(after - before) / (before or 1):+.2%}) with {cost}"
    flags = shlex.join(sources[0].flags(str(sources[0].file)))
    click.echo(f"{said}. Compile with {flags}", err=True)


def tuned(options: Options, sources: Sequence[Source]) -> tuple[float, float]:
    """Searches the sources one after the other, and writes their files. The score before, after."""
    need = 3 if options.link else 2  # compilations of each without a search
    for source in sources if options.link else ():
        source.compile({}, source.keep)
    before, saved, weights = 0.0, 0.0, [len(callees(source.before)) for source in sources]
    for at, source in enumerate(sources):
        least = sum(len(each.seconds) for each in sources) + need * len(sources[at:])
        left = (options.compilations or sys.maxsize) - least
        if left < 0:
            raise click.UsageError(
                f"--compilations: expected {least}, found {options.compilations}"
            )
        source.limit = len(source.seconds) + 2 + left * weights[at] / (sum(weights[at:]) or 1)
        search = source.search(sources)
        try:
            search.run()
        finally:
            if search.plain < math.inf:
                source.file.parent.mkdir(parents=True, exist_ok=True)
                source.file.write_text(file_text(search.attributes))
                click.echo(f"{source.file}: {search.plain:g} to {search.score:g}", err=True)
        if options.link:
            source.compile(search.attributes, source.keep)
        before += 0 if options.link and at else search.plain
        saved += search.plain - search.score
    return before, before - saved

"""shmbridge tune: better plans of decisions for the sources of a compile command."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from shmbridge._llvm.plan import ENDING, Decision, Plan
from shmbridge._tune import remarks
from shmbridge._tune.clang import Compiler, Linker, Measure, measure_of, modules_of
from shmbridge._tune.tuning import Tuning
from shmbridge.cli._option_types import argument, option, takes
from shmbridge.cli._run import compiler_command
from shmbridge.cli._text import one_line
from shmbridge.errors import InvalidError
from shmbridge.training import Module

REPLAY_ENDING = ".replay"


def results_folder() -> Path:
    """Where results are stored unless the command line names a folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shmbridge" / "tune"


@dataclass(frozen=True)
class Options:
    """The command line."""

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
        "Stop after N distinct compilations, including stored ones.  [default: no limit]",
        type=click.IntRange(1),
        metavar="N",
    )
    minutes: float | None = option(
        "Start no compilation after M minutes.  [default: no limit]",
        type=click.FloatRange(0, min_open=True),
        metavar="M",
    )
    seed: int = option("Determines the order in which decisions are reversed.", type=int, default=0)
    results: Path | None = option(
        "Where results are stored for later searches.  [default: ~/.cache/shmbridge/tune]",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="FOLDER",
    )
    commands: Path | None = option(
        "Tune the sources of a compile_commands.json, with their own flags before ARGUMENTS.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
    )
    link: str | None = option(
        "Score the program that COMMAND makes of {objects} as {output}, instead of each object. "
        "The sources are tuned one after the other.",
        metavar="COMMAND",
    )
    output: Path = option(
        "The plan to write, or a folder for the plans of several sources.",
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FILE.plan|FOLDER",
    )
    export: bool = option(
        "Also write each plan for plain clang, as NAME.replay: clang -gline-tables-only -mllvm "
        "-cgscc-inline-replay=FILE makes the same code."
    )
    command: tuple[str, ...] = argument(
        nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CLANG [ARGUMENTS]..."
    )


class Report:
    """The search on stderr: in a terminal the best result so far, otherwise a line for each."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self.status = self._console.status("starting")
        self._best = math.inf

    def __call__(self, tuning: Tuning) -> None:
        """After each compilation."""
        if not tuning.distinct:
            return
        text = f"{change(tuning.before, tuning.after)} after {compilations(tuning.distinct)}"
        self.status.update(text)
        if tuning.after < self._best and not self._console.is_terminal:
            self._console.print(text, soft_wrap=True)
        self._best = tuning.after


def compilations(count: int) -> str:
    """The count and its noun."""
    return f"{count} compilation{'s' if count != 1 else ''}"


def change(before: float, after: float) -> str:
    """Two scores, and the relative change."""
    relative = f" ({(after - before) / before:+.2%})" if before else ""
    return f"{before:g} to {after:g}{relative}"


class Session:
    """A command's searches, and the plans that they write."""

    def __init__(self, compiler: Compiler, options: Options) -> None:
        self.compiler, self._options = compiler, options
        self._until = time.monotonic() + 60 * (options.minutes or math.inf)
        self._compilations = options.compilations or math.inf
        self._tuned: list[Tuning] = []
        self._failed = self.interrupted = False

    def tune(self, modules: Sequence[Module], score: Measure, share: int = 1) -> dict[Module, Path]:
        """Searches with this part of what is left of the budget, and writes the plans."""
        report, now = Report(), time.monotonic()
        tuning = Tuning(
            self.compiler,
            modules,
            score,
            self._options.results or results_folder(),
            jobs=self._options.jobs or len(os.sched_getaffinity(0)),
            compilations=self._compilations / share,
            until=now + (self._until - now) / share,
            seed=self._options.seed,
            progress=report,
        )
        with tuning:
            try:
                with report.status:
                    tuning.run()
            except KeyboardInterrupt:
                self.interrupted = True
            plans = tuning.plans()
        self._compilations -= tuning.distinct
        if tuning.searches:
            self._tuned.append(tuning)
        for module, why in tuning.failed.items():
            text = f"{module.name}: not tuned: {one_line(why)}"
            if not tuning.searches:
                raise click.ClickException(text)
            click.echo(f"shmbridge: {text}", err=True)
            self._failed = True
        return {module: self._write(module, plan) for module, plan in plans.items()}

    def _write(self, module: Module, plan: Plan) -> Path:
        """Writes a plan, and prints what it changes."""
        path = self._options.output
        path = path if path.suffix == ENDING else path / f"{plan.source}{ENDING}"
        path.parent.mkdir(parents=True, exist_ok=True)
        plan.write(path)
        click.echo(
            f"{path}: {plan.score}: {change(plan.before, plan.after)} by {len(plan.decisions)} "
            f"changes of {plan.questions} decisions",
            err=True,
        )
        replay = path.with_suffix(REPLAY_ENDING)
        replay.unlink(missing_ok=True)  # perhaps of another plan
        calls = remarks.calls_of(self.compiler, module, path) if plan.decisions else []
        if len(calls) == len(plan.decisions):
            decisions = {
                site: Decision(each.advice, f"{call}; {each.comment}")
                for (site, each), call in zip(plan.decisions.items(), calls, strict=True)
            }
            replace(plan, decisions=decisions).write(path)
        try:
            if self._options.export:
                replay.write_text(remarks.export(self.compiler, module, path))
        except InvalidError as error:
            click.echo(f"shmbridge: {path}: not exported: {error}", err=True)
            self._failed = True
        return path

    def summary(self) -> str:
        """What all searches did together."""
        distinct = sum(each.distinct for each in self._tuned)
        stored = distinct - sum(each.compiled for each in self._tuned)
        known = f", {stored} of them stored" if stored > 0 else ""
        unfinished = self.interrupted or any(each.spent for each in self._tuned)
        more = "; the same command continues" if unfinished else ""
        scores = change(self._tuned[0].before, self._tuned[-1].after)
        return f"{scores} with {compilations(distinct)}{known}{more}"

    @property
    def status(self) -> int:
        """The exit status."""
        return 130 if self.interrupted else int(self._failed)


def tune_linked(session: Session, modules: Sequence[Module], score: Measure, link: str) -> int:
    """Tunes the sources one after the other, each for the score of the whole program. The number of
    plans."""
    plans: dict[Module, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        linker = Linker(session.compiler, link, modules, Path(folder))
        for at, module in enumerate(modules):
            if session.interrupted:
                break
            found = session.tune([module], linker.measure(module, score), len(modules) - at)
            linker.compile(module, found.get(module))
            plans |= found
    return len(plans)


@click.command(context_settings={"allow_interspersed_args": False})
@takes(Options)
def tune(options: Options) -> None:
    """Search the inlining decisions of a compile command for a smaller score, and write the best
    ones to a plan for each source, for `shmbridge run --plan`.

    The search starts from LLVM's own decisions and reverses some. Each compilation runs stock clang
    of LLVM 22 in a separate folder; the command's own output is not written.

    After Ctrl-C the plans have the best decisions so far. The same command continues, because all
    results are stored. If nothing helps, a plan is empty and means the plain compiler.
    """
    _, words = compiler_command.split(options.command)
    modules, measure = modules_of(words, options.commands), measure_of(options.score)
    if options.output.suffix == ENDING and len(modules) > 1:
        raise click.UsageError(f"-o {options.output}: expected a folder for {len(modules)} sources")
    session = Session(Compiler(words[0]), options)
    if options.link:
        plans = tune_linked(session, modules, measure, options.link)
    else:
        plans = len(session.tune(modules, measure))
    if not plans:
        raise click.ClickException("no compilation ended: give the search more time")
    click.echo(session.summary(), err=True)
    raise SystemExit(session.status)

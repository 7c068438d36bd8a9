"""shmbridge tune: better plans of decisions for the sources of a compile command."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shmbridge._llvm.plan import ENDING, Decision, Plan
from shmbridge._tune import remarks
from shmbridge._tune.clang import Compiler, Linker, Measure, measure_of, modules_of
from shmbridge._tune.tuning import Tuning
from shmbridge.cli._run import compiler_command
from shmbridge.cli._text import one_line
from shmbridge.errors import InvalidError
from shmbridge.training import Module

REPLAY_ENDING = ".replay"


def results_folder() -> Path:
    """Where results are stored unless the command line names a folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shmbridge" / "tune"


class Report:
    """The search on stderr: a bar in a terminal, otherwise a line for each new best result."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self.tuning: Tuning | None = None
        self._best = math.inf
        self._lines = None if console.is_terminal else console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed} compilations"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Report:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self) -> None:
        """After each compilation."""
        tuning = self.tuning
        if not tuning or not tuning.distinct:
            return
        text = change(tuning.before, tuning.after)
        if self._lines and tuning.after < self._best:
            self._lines.print(f"{text} after {tuning.distinct} compilations", soft_wrap=True)
        self._best = tuning.after
        self._bar.update(self._task, description=text, completed=tuning.compiled)


def change(before: float, after: float) -> str:
    """Two scores, and the relative change."""
    relative = f" ({(after - before) / before:+.2%})" if before else ""
    return f"{before:g} to {after:g}{relative}"


class Session:
    """A command's searches, and the plans that they write; arguments as the command's options."""

    def __init__(self, compiler: Compiler, output: Path, export: bool, **given: Any) -> None:
        self.compiler, self._output, self._export = compiler, output, export
        self._folder = given["results"] or results_folder()
        self._jobs = given["jobs"] or len(os.sched_getaffinity(0))
        self._seed = given["seed"]
        self._until = time.monotonic() + 60 * (given["minutes"] or math.inf)
        self._compilations = given["compilations"] or math.inf
        self._tuned: list[Tuning] = []
        self._failed = self.interrupted = False

    def tune(self, modules: Sequence[Module], score: Measure, share: int = 1) -> dict[Module, Path]:
        """Searches with this part of what is left of the budget, and writes the plans."""
        report = Report()
        now = time.monotonic()
        tuning = Tuning(
            self.compiler,
            modules,
            score,
            self._folder,
            jobs=self._jobs,
            compilations=self._compilations / share,
            until=now + (self._until - now) / share,
            seed=self._seed,
            progress=report,
        )
        report.tuning = tuning
        with tuning:
            try:
                with report:
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
        single = self._output.suffix == ENDING
        path = self._output if single else self._output / f"{plan.source}{ENDING}"
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
            if self._export:
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
        return f"{scores} with {distinct} compilations{known}{more}"

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
@click.option(
    "--llvm",
    type=click.Choice(["inline"]),
    default="inline",
    show_default=True,
    help="The decisions to search.",
)
@click.option(
    "--score",
    default="text",
    show_default=True,
    metavar="SCORE",
    help="What to make smaller: text (bytes of .text), object (bytes of the output), or a command "
    "that contains {output} and prints a number. It must be the same for the same output.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="How many compilers run at once. The result does not depend on it.  [default: one for "
    "each CPU]",
)
@click.option(
    "--compilations",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N distinct compilations, including stored ones.  [default: no limit]",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="M",
    help="Start no compilation after M minutes.  [default: no limit]",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Determines the order in which decisions are reversed.",
)
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where results are stored for later searches.  [default: ~/.cache/shmbridge/tune]",
)
@click.option(
    "--commands",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Tune the sources of a compile_commands.json, with their own flags before ARGUMENTS.",
)
@click.option(
    "--link",
    metavar="COMMAND",
    help="Score the program that COMMAND makes of {objects} as {output}, instead of each object. "
    "The sources are tuned one after the other.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.plan|FOLDER",
    help="The plan to write, or a folder for the plans of several sources.",
)
@click.option(
    "--export",
    is_flag=True,
    help="Also write each plan for plain clang, as NAME.replay: clang -gline-tables-only "
    "-mllvm -cgscc-inline-replay=FILE makes the same code.",
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CLANG [ARGUMENTS]..."
)
def tune(
    command: Sequence[str],
    commands: Path | None,
    score: str,
    link: str | None,
    output: Path,
    **given: Any,
) -> None:
    """Search the inlining decisions of a compile command for a smaller score, and write the best
    ones to a plan for each source, for `shmbridge run --plan`.

    The search starts from LLVM's own decisions and reverses some. Each compilation runs stock clang
    of LLVM 22 in a separate folder; the command's own output is not written.

    After Ctrl-C the plans have the best decisions so far. The same command continues, because all
    results are stored. If nothing helps, a plan is empty and means the plain compiler.
    """
    _, words = compiler_command.split(command)
    modules, measure = modules_of(words, commands), measure_of(score)
    if output.suffix == ENDING and len(modules) > 1:
        raise click.UsageError(f"-o {output}: expected a folder for {len(modules)} sources")
    session = Session(Compiler(words[0]), output, **given)
    if link:
        plans = tune_linked(session, modules, measure, link)
    else:
        plans = len(session.tune(modules, measure))
    if not plans:
        raise click.ClickException("no compilation ended: give the search more time")
    click.echo(session.summary(), err=True)
    raise SystemExit(session.status)

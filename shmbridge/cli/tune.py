"""shmbridge tune: a better plan of decisions for one compile command."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shmbridge._llvm.plan import Plan
from shmbridge.cli._option_types import FILE
from shmbridge.cli._run import compiler_command
from shmbridge.training._tune import Command, Search


def results_folder() -> Path:
    """Where results are stored unless the command line names a folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shmbridge" / "tune"


class Report:
    """The search on stderr: a bar in a terminal, otherwise a line for each new best result."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self.search: Search | None = None
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
        """After each result."""
        search = self.search
        if search is None or search.best is None:
            return
        text = change(search.before, search.best.score)
        if self._lines and search.best.score < self._best:
            self._lines.print(f"{text} after {search.distinct} compilations", soft_wrap=True)
        self._best = search.best.score
        self._bar.update(self._task, description=text, completed=search.distinct)


def change(before: float, after: float) -> str:
    """Two scores, and the relative change."""
    relative = f" ({(after - before) / before:+.2%})" if before else ""
    return f"{before:g} to {after:g}{relative}"


def summary(plan: Plan, search: Search, output: Path) -> str:
    """What the search found."""
    stored = search.distinct - search.compiled
    known = f", {stored} of them stored" if stored > 0 else ""
    return (
        f"{output}: {plan.score}: {change(plan.before, plan.after)} by {len(plan.decisions)} "
        f"changes of {plan.questions} decisions; {search.distinct} compilations{known}"
    )


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
    "-o", "--output", type=FILE, required=True, metavar="FILE.plan", help="The plan to write."
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CLANG [ARGUMENTS]..."
)
def tune(
    llvm: str,
    score: str,
    jobs: int | None,
    compilations: int | None,
    minutes: float | None,
    seed: int,
    results: Path | None,
    output: Path,
    command: Sequence[str],
) -> None:
    """Search the inlining decisions of one compile command for a smaller score, and write the best
    ones to a plan, for `shmbridge run --plan`.

    The search starts from LLVM's own decisions and reverses single ones. Each compilation runs
    stock clang of LLVM 22 in a folder of its own; the command's own output is not written.

    After Ctrl-C the plan has the best decisions so far. The same command continues, because all
    results are stored. If nothing helps, the plan is empty and means the plain compiler.
    """
    _, words = compiler_command.split(command)
    cpus = len(os.sched_getaffinity(0))
    report, interrupted = Report(), False
    search = Search(
        Command(words),
        score,
        results or results_folder(),
        jobs=jobs or cpus,
        compilations=compilations or math.inf,
        minutes=minutes or math.inf,
        seed=seed,
        progress=report,
    )
    report.search = search
    with closing(search):
        try:
            with report:
                search.run()
        except KeyboardInterrupt:
            interrupted = True
        plan = search.plan()
    if plan is None:
        raise click.ClickException("no compilation ended: give the search more time")
    plan.write(output)
    again = "; the same command continues" if interrupted or search.spent else ""
    click.echo(f"{summary(plan, search, output)}{again}", err=True)
    if interrupted:
        raise SystemExit(130)

"""shmbridge tune: better plans of decisions for the sources of a compile command."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shmbridge._llvm.plan import ENDING, Plan
from shmbridge.cli._run import compiler_command
from shmbridge.training._tune import Compiler, Tuning, modules_of


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


def write(plans: Sequence[Plan], output: Path, score: str) -> None:
    """Writes the plan, or one for each source below the folder `output`, and prints what each
    changes."""
    for plan in plans:
        path = output if output.suffix == ENDING else output / f"{plan.source}{ENDING}"
        path.parent.mkdir(parents=True, exist_ok=True)
        plan.write(path)
        click.echo(
            f"{path}: {score}: {change(plan.before, plan.after)} by {len(plan.decisions)} changes "
            f"of {plan.questions} decisions",
            err=True,
        )


def summary(tuning: Tuning, again: bool) -> str:
    """What all searches did together."""
    stored = tuning.distinct - tuning.compiled
    known = f", {stored} of them stored" if stored > 0 else ""
    more = "; the same command continues" if again else ""
    return f"{change(tuning.before, tuning.after)} with {tuning.distinct} compilations{known}{more}"


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
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.plan|FOLDER",
    help="The plan to write, or a folder for the plans of several sources.",
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
    commands: Path | None,
    output: Path,
    command: Sequence[str],
) -> None:
    """Search the inlining decisions of a compile command for a smaller score, and write the best
    ones to a plan for each source, for `shmbridge run --plan`.

    The search starts from LLVM's own decisions and reverses single ones. Each compilation runs
    stock clang of LLVM 22 in a folder of its own; the command's own output is not written.

    After Ctrl-C the plans have the best decisions so far. The same command continues, because all
    results are stored. If nothing helps, a plan is empty and means the plain compiler.
    """
    _, words = compiler_command.split(command)
    modules = modules_of(words, commands)
    if output.suffix == ENDING and len(modules) > 1:
        raise click.UsageError(f"-o {output}: expected a folder for {len(modules)} sources")
    report, interrupted = Report(), False
    tuning = Tuning(
        Compiler(words[0]),
        modules,
        score,
        results or results_folder(),
        jobs=jobs or len(os.sched_getaffinity(0)),
        compilations=compilations or math.inf,
        minutes=minutes or math.inf,
        seed=seed,
        progress=report,
    )
    report.tuning = tuning
    with tuning:
        try:
            with report:
                tuning.run()
        except KeyboardInterrupt:
            interrupted = True
        plans = tuning.plans()
    for module, why in tuning.failed.items():
        click.echo(f"shmbridge: {module.name}: not tuned: {why}", err=True)
    if not plans:
        raise click.ClickException("no compilation ended: give the search more time")
    write(plans, output, score)
    click.echo(summary(tuning, interrupted or tuning.spent), err=True)
    if interrupted:
        raise SystemExit(130)

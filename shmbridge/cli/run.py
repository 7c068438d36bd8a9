"""shmbridge run: an unmodified compiler whose decisions a model makes."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shmbridge._llvm import compilers
from shmbridge._llvm.preload import Preload
from shmbridge._native import ffi, lib
from shmbridge._runner.urls import with_options
from shmbridge.cli._option_types import FILE, Bytes
from shmbridge.cli._run import compiler_command
from shmbridge.cli._run.attempt import Attempt, Build, launched, summary
from shmbridge.cli._run.pipes import Pipes
from shmbridge.cli._run.policy import REQUEST_BYTES, Policy, Signals, Streams, die_of
from shmbridge.cli._text import Lines, one_line, printable
from shmbridge.errors import InvalidError, ShmbridgeError

if (
    TYPE_CHECKING
):  # numpy takes longer to import than a small file to compile: only what loads a policy has it
    from shmbridge._host.service import Model
    from shmbridge.logs import LogWriter


def named_decisions(context: click.Context, option: click.Parameter, text: str) -> list[str]:
    """Names of decisions, separated by commas."""
    names = text.split(",")
    if unknown := [name for name in names if name not in compilers.DECISIONS]:
        expected = ", ".join(compilers.DECISIONS)
        raise click.BadParameter(
            f"{unknown[0]!r}: expected some of {expected}, separated by commas"
        )
    return names


def default_advice(
    context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> list[tuple[str, str]]:
    """DECISION=ADVICE, several times."""
    pairs = [(text.partition("=")[0], text.partition("=")[2]) for text in texts]
    try:
        for decision, advice in pairs:
            compilers.check_default(decision, advice)
    except InvalidError as error:
        raise click.BadParameter(str(error)) from error
    return pairs


def runner_url(name: str, deadline: float | None) -> str:
    """The URL of a runner at a bridge's name or URL, with this deadline unless the URL has one."""
    return with_options(name, **({"deadline": f"{deadline:.9f}"} if deadline is not None else {}))


def beware_of_cache(words: list[str]) -> None:
    """A cache in front of this command would give its object out for another policy too. ccache goes without its cache when
    its preprocessing fails, and asks for that before it asks for an object; another cache's user is warned."""
    cache = lib.shmb_build_cache()
    advice = "put it behind shmbridge run, which goes round it, or leave it out"
    if cache:
        name = ffi.string(cache).decode()
        click.echo(
            f"shmbridge: {name} in front keeps an object also for when the policy has changed: {advice}",
            err=True,
        )
        if name == "ccache" and "-E" in words:
            raise SystemExit(1)


def load_policy(
    onnx: Path | None, function: str | None, record: Path | None, verbose: bool
) -> tuple[Model, LogWriter | None]:
    """The policy, in its own process, and the training log `record`, whole when the process ends."""
    # Without -v the summary counts errors: a build's output shows no traceback.
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(Lines(verbose))
    logging.getLogger("shmbridge").addHandler(handler)
    from shmbridge._host.onnx import OnnxModel
    from shmbridge.cli._model import load_python

    model = OnnxModel(onnx) if onnx else load_python(str(function), "--host")

    def policy(request: Mapping[str, Any]) -> Any:
        return compilers.rounded(model(request))

    if record is None:
        return policy, None
    from shmbridge.logs import LogWriter

    log = LogWriter(
        record, warn=lambda text: click.echo(printable(f"shmbridge: {record}: {text}"), err=True)
    )
    atexit.register(log.close)
    return policy, log


def split_or_whole(command: Sequence[str], kind: str | None) -> tuple[list[str], list[str]]:
    """As `launch.split`; a command in which it finds no compiler is one itself, of which `known` says what it is."""
    with suppress(InvalidError):
        return compiler_command.split(command, kind)
    return [], list(command)


def known(compiler: str) -> str:
    """Which kind of compiler it is. ShmbridgeError: its name does not tell, so it can only run as it is."""
    try:
        return compilers.kind_of(compiler)
    except InvalidError as error:
        raise ShmbridgeError(str(error)) from error


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--llvm",
    "decisions",
    callback=named_decisions,
    required=True,
    metavar="DECISIONS",
    help="What to ask about: inline, evict (register allocation), priority (of live ranges); separated by commas.",
)
@click.option(
    "--host",
    "function",
    metavar="MODULE:FUNCTION",
    help="The policy: a function from a mapping of features to advice; the current directory is searched first. A file "
    "(/home/me/policy.py:advise) is found from every directory: under make -C, CMake and their like.",
)
@click.option(
    "--onnx",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The policy: an ONNX model, whose input names are the features'.",
)
@click.option(
    "--connect", metavar="NAME", help="The policy: a host that runs already, by its name or URL."
)
@click.option(
    "--default",
    "defaults",
    callback=default_advice,
    multiple=True,
    metavar="DECISION=ADVICE",
    help="The advice for a decision that the policy fails to make, for example inline=0.  [default: none; such a file is "
    "compiled again without the policy]",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="For one decision. After a late one the compiler stops asking. inf: no limit.  "
    "[default: what the host says, or 10]",
)
@click.option(
    "--record",
    metavar="LOG",
    type=FILE,
    help="Keep features and advice in LLVM's training log format: LOG, LOG.2, …, one for each decision and compiler.",
)
@click.option(
    "--channels",
    type=click.IntRange(1, 256),
    help="Files and threads that ask the policy at once, times decisions.  [default: 8; 32 where the compiler has threads]",
)
@click.option(
    "--request-bytes",
    type=Bytes(),
    default=REQUEST_BYTES,
    show_default=True,
    help="Room for one question. Two for each channel are reserved in /dev/shm.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail, and leave no output, if the policy is missing or does not advise on every decision.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, 2**62),
    metavar="N",
    help="Ask about the first N decisions of this command only, of all kinds together, in the order in which its compilers come "
    "to them; for bisecting. The rest is LLVM's own: for inlining what LLVM 22 says it would do, else --default's advice.",
)
@click.option(
    "--pipes",
    is_flag=True,
    help="Named pipes rather than shared memory and a preloaded library: slower.",
)
@click.option(
    "--include-default",
    is_flag=True,
    help="The inliner also tells what it would do itself (LLVM 22).",
)
@click.option(
    "--flags-for",
    "kind",
    type=click.Choice(list(compilers.MAKES)),
    help="Which compiler it is, where its name does not tell.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Always print how many decisions of each kind were advised, and where the policy failed.",
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMPILER [ARGUMENTS]..."
)
def run(
    decisions: list[str],
    function: str | None,
    onnx: Path | None,
    connect: str | None,
    defaults: list[tuple[str, str]],
    deadline: float | None,
    record: Path | None,
    channels: int | None,
    request_bytes: int,
    strict: bool,
    limit: int | None,
    pipes: bool,
    include_default: bool,
    kind: str | None,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Run an unmodified clang, opt, llc, rustc or ld.lld, whose decisions a policy makes; ends with the compiler's own status.

    Also as a launcher: make -j4 CC="shmbridge run --llvm inline --host policy:advise -- clang-22". The policy's request also holds
    "decision" (inlining_decision, index_to_evict or priority) and "context", the function's name where LLVM tells it. If the
    policy is missing, fails, hangs or dies, the file is compiled again without it, and the first such file of a build prints one
    line that says why. So an object is made with the policy's advice throughout, or it is the plain compiler's. The compiler may
    stand behind launchers, as nice or ccache, whose cache is left alone. A link with -flto asks as well. opt gets an inliner
    pass unless it is told its -passes; with --pipes, which threads cannot share, rustc gets -Ccodegen-units=1.
    """
    if [function, onnx, connect].count(None) != 2:
        raise click.UsageError(
            "expected one policy: --host MODULE:FUNCTION, --onnx FILE or --connect NAME"
        )
    if connect and record:
        raise click.UsageError(
            f"--record goes with --host or --onnx. To record what {connect} is asked, run shmbridge record {connect} NAME LOG "
            "beside it and say --connect NAME here"
        )
    if function:
        from shmbridge.runners.python import split

        split(function)
    for decision, advice in defaults:
        if decision not in decisions:
            raise click.UsageError(
                f"--default {decision}={advice}: expected {decision} in --llvm {','.join(decisions)}"
            )
    launchers, words = split_or_whole(command, kind)
    if shutil.which(words[0]) is None:
        click.echo(f"shmbridge: {words[0]}: no such compiler", err=True)
        raise SystemExit(127)
    beware_of_cache(words)
    chosen = dict(defaults)
    build = Build(connect or function or str(onnx), connect)
    signals, streams = Signals(), Streams()

    def ask(stack: ExitStack) -> Attempt:
        """Compiles with the policy; what that needs is on the stack."""
        like = kind or known(words[0])
        wanted, name = compilers.asked_of(like, decisions), connect
        if missing := compilers.unasked(like, words[1:], wanted):
            click.echo(f"shmbridge: {missing}", err=True)
        build.check()
        explain: Callable[[str], str] = str
        if name is None:
            room = {
                "channels": channels or compilers.conversations(like, words),
                "request_bytes": request_bytes,
            }
            policy = Policy(partial(load_policy, onnx, function, record, verbose), **room)
            stack.callback(policy.close)
            name, explain = policy.name, policy.explain
        url = runner_url(name, deadline)
        piped = pipes or not compilers.preloads(words[0])
        there = (
            Pipes(wanted, url, chosen, limit, compilers.source_of(words))
            if piped
            else Preload(url, chosen, limit)
        )
        stack.callback(there.close)
        bases = {decision: there.base(decision) for decision in wanted}
        tells = include_default or (limit is not None and compilers.tells_default(words[0]))
        asking = [*launchers, *compilers.with_flags(words, like, bases, tells, piped)]
        environment = {**os.environ, **compilers.CACHE_BYPASS, **there.environment}
        streams.keep(*compilers.streams_of(like, words[1:]))
        status = signals.run(asking, environment, **streams.rewound())
        counts = [replace(c, why=explain(c.why)) for c in there.counts()]
        return Attempt(status, counts, there.loaded(words[0]))

    with signals.forwarded(), ExitStack() as stack:
        try:
            attempt = launched(words[0]) or ask(stack)
            why = "" if signals.passed_on else attempt.failure(words[0], () if strict else chosen)
        except InvalidError:
            raise
        except Exception as error:
            attempt, why = None, one_line(error)
        stack.close()
        if why and strict:
            made = compilers.remove_outputs(kind or known(words[0]), words) if attempt else []
            removed = f"; removed {', '.join(made)}" if made else ""
            raise click.ClickException(f"{why}{removed}")
        if attempt and not why:
            status = attempt.status
            lacking = any(count.defaulted for count in attempt.counts)  # --default made these
            if (lacking and build.is_first_failure(attempt)) or verbose:
                click.echo(f"shmbridge: {summary(attempt.counts, decisions)}", err=True)
        else:
            if build.is_first_failure(attempt) or verbose:
                click.echo(ffi.string(lib.shmb_build_warning).decode() % why, err=True, nl=False)
            if attempt and not attempt.status:
                streams.keep_errors()
            status = signals.run(command, os.environ, **streams.rewound())
        streams.deliver(status)
    if status < 0:
        die_of(-status)
    raise SystemExit(status)

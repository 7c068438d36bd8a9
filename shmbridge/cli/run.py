"""shmbridge run: an unmodified compiler whose decisions a model makes."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shmbridge import _llvm
from shmbridge._native import ffi, lib
from shmbridge._preload import Count, Preload
from shmbridge._url import with_options
from shmbridge.cli import launch
from shmbridge.cli.channels import Pipes
from shmbridge.cli.option_types import FILE, Bytes
from shmbridge.cli.supervise import REQUEST_BYTES, Policy, Signals, die_of, one_line
from shmbridge.errors import InvalidError, ShmbridgeError

if (
    TYPE_CHECKING
):  # numpy takes longer to import than a small file to compile: only what loads a policy has it
    from shmbridge._service import Model
    from shmbridge.training_log import LogWriter

DEADLINE: float = lib.shmb_llvm_deadline  # seconds


def named_decisions(context: click.Context, option: click.Parameter, text: str) -> list[str]:
    """Names of decisions, separated by commas."""
    names = text.split(",")
    if unknown := [name for name in names if name not in _llvm.DECISIONS]:
        expected = ", ".join(_llvm.DECISIONS)
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
            _llvm.check_default(decision, advice)
    except InvalidError as error:
        raise click.BadParameter(str(error)) from error
    return pairs


def runner_url(name: str, deadline: float) -> str:
    """The URL of a runner at a bridge's name or URL, with this deadline unless the URL has one."""
    return with_options(name, **({"deadline": f"{deadline:.9f}"} if deadline else {}))


def summary(counts: Iterable[Count], decisions: Iterable[str] = ()) -> tuple[str, int]:
    """One line, and how many took the default advice; of each of `decisions`, and of those that took it."""
    lines = (f"{c.decision} {c.asked} {c.defaulted} 0 {' '.join(c.why.split())}\n" for c in counts)
    text = ffi.new("char[]", lib.SHMB_SUMMARY_BYTES)
    defaulted = lib.shmb_llvm_summary("".join(lines).encode(), ",".join(decisions).encode(), text)
    return ffi.string(text).decode(errors="replace"), defaulted


def beware_of_cache(words: list[str]) -> None:
    """A cache in front of this command would give its object out for another policy too. ccache goes without its cache when
    its preprocessing fails, and asks for that before it asks for an object; another cache's user is warned."""
    cache = launch.cache_in_front()
    advice = "put it behind shmbridge run, which goes round it, or leave it out"
    if cache:
        click.echo(
            f"shmbridge: {cache} in front keeps an object also for when the policy has changed: {advice}",
            err=True,
        )
    if cache == "ccache" and "-E" in words:
        raise SystemExit(1)


def load_policy(
    onnx: Path | None, function: str | None, record: Path | None, verbose: bool
) -> tuple[Model, LogWriter | None]:
    """The policy, in its own process, and the training log `record`, whole when the process ends."""
    if not verbose:  # the summary counts errors: a build's output shows no traceback
        logging.getLogger("shmbridge").addHandler(logging.NullHandler())
    from shmbridge._onnx import OnnxModel
    from shmbridge.cli.model import load_python

    model = OnnxModel(onnx) if onnx else load_python(str(function), "--host")

    def policy(request: Mapping[str, Any]) -> Any:
        return _llvm.rounded(model(request))

    if record is None:
        return policy, None
    from shmbridge.training_log import LogWriter

    log = LogWriter(record, warn=lambda text: click.echo(f"shmbridge: {record}: {text}", err=True))
    atexit.register(log.close)
    return policy, log


@dataclass
class Asking:
    """A command that asks; of one that does not, nothing but the command."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    counts: Callable[[], list[Count]] = list


def split_or_whole(command: Sequence[str], kind: str | None) -> tuple[list[str], list[str]]:
    """As `launch.split`; a command in which it finds no compiler is one itself, of which `known` says what it is."""
    with suppress(InvalidError):
        return launch.split(command, kind)
    return [], list(command)


def known(compiler: str) -> str:
    """Which kind of compiler it is. ShmbridgeError: its name does not tell, so it can only run as it is."""
    try:
        return _llvm.kind_of(compiler)
    except InvalidError as error:
        raise ShmbridgeError(str(error)) from error


def or_plainly(
    ask: Callable[[ExitStack], Asking], command: Sequence[str], strict: bool, stack: ExitStack
) -> Asking:
    """What `ask` prepares on the stack. Where that fails, one line says so and the command runs as it is, unless strict. A wrong option
    (InvalidError) stays an error."""
    try:
        return ask(stack)
    except InvalidError:
        raise
    except Exception as error:
        if strict:
            raise click.ClickException(one_line(error)) from error
        stack.close()
        click.echo(f"shmbridge: {one_line(error)}: the compiler runs without a policy", err=True)
        return Asking(command)


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
    help="What is advised where the policy has nothing to say, as inline=0.  [default: what LLVM says it would do, or no "
    "inlining, no eviction where that is allowed, the larger live range first]",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0),
    default=DEADLINE,
    show_default=True,
    metavar="SECONDS",
    help="For one decision; after one that is late, that compiler asks no more. 0: none.",
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
    help="Fail where the policy cannot be had, before the compiler starts, or where a decision took the default advice.",
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
    type=click.Choice(list(_llvm.MAKES)),
    help="Which compiler it is, where its name does not tell.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Say how many of each decision were asked for, also if all is well, and show where the policy failed.",
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
    deadline: float,
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
    "decision" (inlining_decision, index_to_evict or priority) and "context", the function's name where LLVM tells it. A
    policy that fails, hangs or dies is replaced by a default advice, and one line on stderr counts these. Where the policy cannot be
    had at all, one line says why and the compiler runs as it is. The compiler may stand behind launchers, as nice or ccache, whose
    cache is left alone. A link with -flto asks as well. opt gets an inliner
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

    def ask(stack: ExitStack) -> Asking:
        like = kind or known(words[0])
        wanted, name = _llvm.asked_of(like, decisions), connect
        if missing := _llvm.unasked(like, words[1:], wanted):
            click.echo(f"shmbridge: {missing}", err=True)
        explain: Callable[[str], str] = str
        if name is None:
            room = {
                "channels": channels or _llvm.conversations(like, words),
                "request_bytes": request_bytes,
            }
            policy = Policy(partial(load_policy, onnx, function, record, verbose), **room)
            stack.callback(policy.close)
            name, explain = policy.name, policy.explain
        url, chosen = runner_url(name, deadline), dict(defaults)
        there = Pipes(wanted, url, chosen, limit) if pipes else Preload(url, chosen, limit)
        stack.callback(there.close)
        bases = {decision: there.base(decision) for decision in wanted}
        tells = include_default or (limit is not None and _llvm.tells_default(words[0]))
        return Asking(
            [*launchers, *_llvm.with_flags(words, like, bases, tells, pipes)],
            {**_llvm.CACHE_BYPASS, **there.environment},
            lambda: [replace(c, why=explain(c.why)) for c in there.counts()],
        )

    signals = Signals()
    with signals.forwarded(), ExitStack() as stack:
        asking = or_plainly(ask, command, strict, stack)
        status = signals.run(asking.command, os.environ | asking.environment)
        line, defaulted = summary(asking.counts(), decisions if verbose else ())
        if defaulted or verbose:
            click.echo(line, err=True)
    if status < 0:
        die_of(-status)
    raise SystemExit(status or int(strict and defaulted > 0))

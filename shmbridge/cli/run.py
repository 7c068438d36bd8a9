"""shmbridge run: an unmodified compiler with a policy."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shmbridge._llvm import compilers
from shmbridge._llvm.preload import Preload
from shmbridge._native import ffi, lib
from shmbridge._runner.urls import with_options
from shmbridge.cli._option_types import FILE, argument, in_letters, option, size, takes
from shmbridge.cli._run import compiler_command
from shmbridge.cli._run.attempt import Attempt, Build, launched, summary
from shmbridge.cli._run.compiler import Signals, Streams, die_of
from shmbridge.cli._run.pipes import Pipes
from shmbridge.cli._run.policy import REQUEST_BYTES, Policy
from shmbridge.cli._text import Lines, one_line
from shmbridge.errors import DeadlineError, InvalidError, ShmbridgeError

# Numpy takes longer to import than a small file to compile: only what loads a policy has it.
if TYPE_CHECKING:
    from shmbridge._host.service import Model


def beware_of_cache(words: list[str]) -> None:
    """A cache before this command would return its object for another policy, too. ccache compiles
    without its cache if its preprocessing fails, which it runs first; users of other caches are
    warned."""
    cache = lib.shmb_build_cache()
    advice = "put it after shmbridge run, which bypasses it, or remove it"
    if cache:
        name = ffi.string(cache).decode()
        click.echo(
            f"shmbridge: {name} before shmbridge run also reuses objects after the policy changes: "
            f"{advice}",
            err=True,
        )
        if name == "ccache" and "-E" in words:
            raise SystemExit(1)


def load_policy(onnx: Path | None, function: str | None, verbose: bool) -> Model:
    """The policy, in its own process."""
    # Without -v the summary counts errors: a build's output shows no traceback.
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(Lines(verbose))
    logging.getLogger("shmbridge").addHandler(handler)
    from shmbridge._host.onnx import OnnxModel
    from shmbridge.cli._model import load_python

    model = OnnxModel(onnx) if onnx else load_python(str(function), "--host")
    return lambda request: compilers.rounded(model(request))


@dataclass(frozen=True)
class Options:
    """The command line."""

    decisions: list[str] = option(
        "The decisions that the policy makes, separated by commas: inline, evict (register "
        "allocation), priority (of live ranges).",
        "--llvm",
        required=True,
        callback=lambda _context, _option, text: text.split(","),
        metavar="DECISIONS",
    )
    function: str | None = option(
        "The policy: a function that takes a mapping of features and returns advice. The current "
        "directory is searched first. For make -C, CMake and similar tools, give a file instead: "
        "/home/me/policy.py:advise.",
        "--host",
        metavar="MODULE:FUNCTION",
    )
    onnx: Path | None = option(
        "The policy: an ONNX model whose inputs have the features' names.",
        metavar="FILE",
        type=click.Path(path_type=Path),
    )
    connect: str | None = option(
        "The policy: the name or URL of a running host, or a model to load into the compiler: "
        "onnx:///MODEL.onnx, tflite:///MODEL.tflite or aot:///MODEL.so.",
        metavar="NAME",
    )
    defaults: dict[str, str] = option(
        "The advice to use when the policy fails, for example inline=0.  [default: none; compile "
        "the file again without the policy]",
        "--default",
        callback=lambda _context, _option, texts: dict(text.partition("=")[::2] for text in texts),
        multiple=True,
        metavar="DECISION=ADVICE",
    )
    deadline: float | None = option(
        "The deadline of one decision. After a late one the compiler stops asking. inf: no limit. "
        " [default: the host's, or 10]",
        type=click.FloatRange(0),
        metavar="SECONDS",
    )
    record: Path | None = option(
        "Write features and advice in LLVM's training log format, to one file per decision and "
        "compiler: LOG, LOG.2, …. Not with --connect.",
        metavar="LOG",
        type=FILE,
    )
    channels: int | None = option(
        "How many compilers can ask the policy at once: files and threads, times decisions.  "
        "[default: 8; 32 if the compiler has threads]",
        type=click.IntRange(1, lib.MAX_CHANNELS),
    )
    request_bytes: int = option(
        "The maximum size of a question. /dev/shm holds two for each channel.",
        type=size,
        default=in_letters(REQUEST_BYTES),
    )
    strict: bool = option(
        "Fail without output if the policy is missing or does not make every decision."
    )
    limit: int | None = option(
        "For bisecting: ask only about the first N decisions of this command, counting all kinds "
        "together. LLVM makes the others: LLVM 22's own decision for inlining, otherwise "
        "--default's advice.",
        type=click.IntRange(0, 2**62),
        metavar="N",
    )
    pipes: bool = option(
        "Use named pipes instead of shared memory and a preloaded library; slower."
    )
    include_default: bool = option("Add the inliner's own decision to the features (LLVM 22).")
    kind: str | None = option(
        "The kind of compiler, if its name does not show it.",
        "--flags-for",
        type=click.Choice(list(compilers.MAKES)),
    )
    verbose: bool = option(
        "Always print how many decisions of each kind the policy made, and where it failed.",
        "-v",
        "--verbose",
    )
    command: tuple[str, ...] = argument(
        nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMPILER [ARGUMENTS]..."
    )

    @cached_property
    def split(self) -> tuple[list[str], list[str]]:
        """Launchers such as ccache, and the compiler with its arguments. A command without a known
        compiler is the compiler."""
        with suppress(InvalidError):
            return compiler_command.split(self.command, self.kind)
        return [], list(self.command)

    @property
    def words(self) -> list[str]:
        """The compiler and its arguments."""
        return self.split[1]

    @property
    def like(self) -> str:
        """The kind of compiler. ShmbridgeError: its name does not show it, so it runs unchanged."""
        try:
            return self.kind or compilers.kind_of(self.words[0])
        except InvalidError as error:
            raise ShmbridgeError(str(error)) from error

    def check(self) -> None:
        """Raises UsageError, or InvalidError, for options that conflict."""
        if [self.function, self.onnx, self.connect].count(None) != 2:
            raise click.UsageError(
                "expected one policy: --host MODULE:FUNCTION, --onnx FILE or --connect NAME"
            )
        if self.connect and self.record:
            raise click.UsageError(
                f"--record needs --host or --onnx. To record the questions to {self.connect}, also "
                f"run shmbridge record {self.connect} NAME LOG, and pass --connect NAME here"
            )
        if self.function:
            from shmbridge.runners.python import split

            split(self.function)
        try:
            compilers.check_decisions(self.decisions)
            for decision, advice in self.defaults.items():
                compilers.check_default(decision, advice)
        except InvalidError as error:
            raise click.UsageError(str(error)) from error
        for decision, advice in self.defaults.items():
            if decision not in self.decisions:
                raise click.UsageError(
                    f"--default {decision}={advice}: expected {decision} in --llvm "
                    + ",".join(self.decisions)
                )


class Compilation:
    """One command, compiled with the policy, and again without it if that fails."""

    def __init__(self, options: Options) -> None:
        self._options = options
        policy = options.connect or options.function or str(options.onnx)
        self._build = Build(policy, options.connect)
        self._signals, self._streams = Signals(), Streams()

    def run(self) -> int:
        """The compiler's status; negative: the signal that ended it."""
        options = self._options
        attempt, late = None, False
        with self._signals.forwarded(), ExitStack() as stack:
            try:
                attempt = launched(options.words[0]) or self._ask(stack)
                defaults = () if options.strict else options.defaults
                failed = attempt.failure(options.words[0], defaults)
                why, late = "" if self._signals.passed_on else failed, attempt.late
            except InvalidError:
                raise
            except Exception as error:
                attempt, why, late = None, one_line(error), isinstance(error, DeadlineError)
            stack.close()
            if why and options.strict:
                made = compilers.remove_outputs(options.like, options.words) if attempt else []
                removed = f"; removed {', '.join(made)}" if made else ""
                raise click.ClickException(f"{why}{removed}")
            if attempt and not why:
                status = self._keep(attempt)
            else:
                status = self._compile_plainly(attempt, why, late)
            self._streams.deliver(status)
        return status

    def _ask(self, stack: ExitStack) -> Attempt:
        """Compiles with the policy; what that needs is on the stack."""
        options = self._options
        launchers, words = options.split
        like = options.like
        wanted = compilers.asked_of(like, options.decisions)
        if missing := compilers.unasked(like, words[1:], wanted):
            click.echo(f"shmbridge: {missing}", err=True)
        self._build.check()
        name, explain = self._policy(like, stack)
        deadline = {} if options.deadline is None else {"deadline": f"{options.deadline:.9f}"}
        url = with_options(name, **deadline)
        piped = options.pipes or not compilers.preloads(words[0], launchers)
        label = compilers.source_of(words)
        channel: Pipes | Preload = (
            Pipes(wanted, url, options.defaults, options.limit, label)
            if piped
            else Preload(url, options.defaults, options.limit)
        )
        stack.callback(channel.close)
        bases = {decision: channel.base(decision) for decision in wanted}
        limited = options.limit is not None and compilers.tells_default(words[0])
        tells = options.include_default or limited
        asking = [*launchers, *compilers.with_flags(words, like, bases, tells, piped)]
        environment = {**os.environ, **compilers.CACHE_BYPASS, **channel.environment}
        environment["SHMBRIDGE_LLVM_SOURCE"] = compilers.source_of(words, or_output=False)
        self._streams.keep(*compilers.streams_of(like, words[1:]))
        status = self._signals.run(asking, environment, **self._streams.rewound())
        counts = [replace(c, why=explain(c.why)) for c in channel.counts()]
        return Attempt(status, counts, channel.loaded(words[0]))

    def _policy(self, like: str, stack: ExitStack) -> tuple[str, Callable[[str], str]]:
        """The name or URL of the policy's host, and what explains its errors."""
        options = self._options
        if options.connect is not None:
            return options.connect, str
        policy = Policy(
            partial(load_policy, options.onnx, options.function, options.verbose),
            options.deadline,
            options.record,
            channels=options.channels or compilers.conversations(like, options.words),
            request_bytes=options.request_bytes,
        )
        stack.callback(policy.close)
        return policy.name, policy.explain

    def _keep(self, attempt: Attempt) -> int:
        """Keeps the policy's object."""
        options = self._options
        lacking = any(count.defaulted for count in attempt.counts)  # --default made these
        if (lacking and self._build.is_first_failure(attempt.late)) or options.verbose:
            click.echo(f"shmbridge: {summary(attempt.counts, options.decisions)}", err=True)
        return attempt.status

    def _compile_plainly(self, attempt: Attempt | None, why: str, late: bool) -> int:
        if self._build.is_first_failure(late) or self._options.verbose:
            click.echo(ffi.string(lib.shmb_build_warning).decode() % why, err=True, nl=False)
        if attempt and not attempt.status:
            self._streams.keep_errors()
        return self._signals.run(self._options.command, os.environ, **self._streams.rewound())


@click.command(context_settings={"allow_interspersed_args": False})
@takes(Options)
def run(options: Options) -> None:
    """Run an unmodified clang, opt, llc, rustc or ld.lld with a policy that makes its decisions.
    Exits with the compiler's status.

    It also works as a launcher: make -j4 CC="shmbridge run --llvm inline --host policy:advise --
    clang-22". The policy's request also contains "decision" (inlining_decision, index_to_evict or
    priority) and "context" (the function's name, if LLVM sends it).

    If the policy is missing, fails, hangs or dies, the file is compiled again without it, and the
    first such file of a build prints the reason. So each object is made either entirely with the
    policy or entirely without it.

    The compiler may follow other launchers, such as nice or ccache, whose cache is bypassed. Links
    with -flto ask, too. opt gets an inliner pass unless you pass -passes. With --pipes, rustc gets
    -Ccodegen-units=1, because threads cannot share the pipes.
    """
    options.check()
    if shutil.which(options.words[0]) is None:
        click.echo(f"shmbridge: {options.words[0]}: no such compiler", err=True)
        raise SystemExit(127)
    beware_of_cache(options.words)
    status = Compilation(options).run()
    if status < 0:
        die_of(-status)
    raise SystemExit(status)

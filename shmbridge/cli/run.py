"""shmbridge run: an unmodified compiler with a policy."""

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import click

from shmbridge._llvm import commands, compilers, preload
from shmbridge._native import ffi, lib
from shmbridge._runner.urls import with_options
from shmbridge._urls.plugins import split_place
from shmbridge.cli._option_types import FILE, argument, option, takes
from shmbridge.cli._processes import ENDING
from shmbridge.cli._run import compiler_command
from shmbridge.cli._run.policy import Policy, load_policy
from shmbridge.cli._text import one_line
from shmbridge.errors import InvalidError, ShmbridgeError


def tell(text: str) -> None:
    """One line for the user, without which a build goes on."""
    with suppress(OSError):
        os.write(2, f"shmbridge: {text}\n".encode(errors="replace"))


def beware_of_cache(words: list[str]) -> None:
    """A cache before this command would return its object for another policy, too. ccache compiles
    without its cache if its preprocessing fails, which it runs first; users of other caches are
    warned."""
    cache = lib.shmb_build_cache()
    advice = "put it after shmbridge run, which bypasses it, or remove it"
    if cache:
        name = ffi.string(cache).decode()
        tell(f"{name} before shmbridge run also reuses objects after the policy changes: {advice}")
        if name == "ccache" and "-E" in words:
            raise SystemExit(1)


@dataclass(frozen=True)
class Options:
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
    # From cdef/launcher, which has printed nothing: when it began to compile, and what failed.
    failed: str = option("", "--failed", default="", hidden=True)
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
            split_place(self.function)
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
    """One command, compiled with the policy, and again without it if that fails: what asks is
    prepared here, and cdef/src/command/run.h does the rest."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._policy_name = options.connect or options.function or str(options.onnx)
        self._kept = list[Any]()  # what the run points to
        self._close_pipes: Callable[[], None] = lambda: None
        self._run = ffi.new("shmb_run *")
        self._set(policy=self._policy_name, decisions=",".join(options.decisions))
        self._set(defaults=preload.in_words(options.defaults))
        self._set(compiler=options.words[0], plain=options.command)
        self._run.strict, self._run.verbose = options.strict, options.verbose

    def _set(self, **fields: str | Sequence[str]) -> None:
        for name, value in fields.items():
            words = [value] if isinstance(value, str) else value
            texts = [ffi.new("char[]", os.fsencode(word)) for word in words]
            all_of_them = ffi.new("char *[]", [*texts, ffi.NULL])
            setattr(self._run, name, texts[0] if isinstance(value, str) else all_of_them)
            self._kept += [all_of_them, *texts]

    def run(self) -> int:
        """How the compiler ended, as os.wait says it."""
        with ExitStack() as stack:
            try:
                explain = self._prepare(stack)
            except InvalidError:
                raise
            except Exception as error:
                why = one_line(error).encode()
                status = error.status if isinstance(error, ShmbridgeError) else lib.SHMB_SYSTEM
                stack.close()
                ended = lib.shmb_run_without(self._run, why, status)
            else:
                asked = lib.shmb_run_ask(self._run)
                self._close_pipes()  # they say only now what was asked
                report = self._report()
                lines = [explain(line) for line in report.splitlines(True)]
                stack.close()
                self._report_unasked(report, asked)
                os.ftruncate(self._run.report, 0)
                os.pwrite(self._run.report, "".join(lines).encode(), 0)
                ended = lib.shmb_run_end(self._run, asked)
        if ended < 0:
            remove_and_fail(self._options, ffi.string(lib.shmb_run_why()).decode(), self._run.began)
        return int(ended)

    def _report(self) -> str:
        file = self._run.report
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def _report_unasked(self, report: str, status: int) -> None:
        """Says once in a build why the compiler has asked nothing, or refuses that if strict."""
        options, counts = self._options, preload.counts_of(report)
        silent = set(options.decisions) - {count.decision for count in counts}
        asked = {count.decision for count in counts if count.asked}
        why = ""
        if silent and not status:
            why = compilers.why_unasked(options.like, options.words, silent)
        if why and options.strict:
            remove_and_fail(options, why, self._run.began)
        if not status and "inline" in set(options.decisions) - asked:
            why = why or compilers.unasked_at_link(options.like, options.words)
        known = self._policy_name.encode(), lib.SHMB_BUILD_OTHER
        if why and (lib.shmb_build_failed(*known) or options.verbose):
            tell(why)

    def _prepare(self, stack: ExitStack) -> Callable[[str], str]:
        """Starts what the compiler asks, which is on the stack; what explains a line of its
        report."""
        options = self._options
        launchers, words = options.split
        like = options.like
        wanted = compilers.asked_of(like, options.decisions)
        check_build(self._policy_name, options.connect)
        self._run.report = lib.shmb_unnamed_file()
        if self._run.report < 0:
            raise ShmbridgeError(f"no unnamed file in memory or $TMPDIR: {os.strerror(ffi.errno)}")
        url, explain = self._policy(like, stack)
        limited = options.limit is not None
        piped = options.pipes or not commands.preloads(words[0], launchers)
        self._run.limit = options.limit if limited else -1
        self._run.deadline = -1 if options.deadline is None else options.deadline
        self._set(url=url, source=commands.source_of(words, or_output=False))
        base = compilers.base_in_compiler
        if piped:
            from shmbridge.cli._run.pipes import Pipes  # takes 10 ms that most runs do not need

            deadline = {} if options.deadline is None else {"deadline": f"{options.deadline:.9f}"}
            pipes = Pipes(
                options.command,
                wanted,
                with_options(url, **deadline),
                options.defaults,
                self._run.limit,
                commands.source_of(words),
                self._run.report,
            )
            stack.callback(pipes.close)
            self._close_pipes, base = pipes.close, pipes.base
        else:
            self._set(library=preload.library())
        bases = {decision: base(decision) for decision in wanted}
        tells = options.include_default or (limited and compilers.tells_default(words[0]))
        self._set(asking=[*launchers, *compilers.with_flags(words, like, bases, tells, piped)])
        self._run.reads_stdin = commands.reads_stdin(like, words[1:])
        return explain

    def _policy(self, like: str, stack: ExitStack) -> tuple[str, Callable[[str], str]]:
        """The name or URL of the policy's host, and what explains a line of a report."""
        options = self._options
        if options.connect is not None:
            return options.connect, str
        policy = Policy(
            partial(load_policy, options.onnx, options.function, options.verbose),
            options.deadline,
            options.record,
            compilers.conversations(like, options.words),
        )
        stack.callback(policy.close)
        return policy.name, policy.explain


def check_build(policy: str, url: str | None) -> None:
    """Raises ShmbridgeError if asking is pointless: there is no host, or it failed a moment ago."""
    why = ffi.new("char[]", lib.SHMB_WHY_BYTES)
    if not lib.shmb_build_asks(policy.encode(), ffi.NULL if url is None else url.encode(), why):
        raise ShmbridgeError(ffi.string(why).decode(errors="replace"))


def remove_and_fail(options: Options, why: str, began: int) -> NoReturn:
    """Removes what was compiled since then, and fails."""
    made = commands.remove_outputs(options.like, options.words, began) if began else []
    raise click.ClickException(why + (f"; removed {', '.join(made)}" if made else ""))


@click.command(context_settings={"allow_interspersed_args": False})
@takes(Options)
def run(options: Options) -> None:
    """Run clang, opt, llc, rustc or ld.lld with your policy.

    The policy makes decisions that the compiler's heuristic makes otherwise. The exit status is the
    compiler's.

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
    if options.failed:
        began, _, why = options.failed.partition(" ")
        remove_and_fail(options, why, int(began))
    options.check()
    if shutil.which(options.words[0]) is None:
        tell(f"{options.words[0]}: no such compiler")
        raise SystemExit(127)
    beware_of_cache(options.words)
    for number in ENDING:  # until there is a compiler, they end this process at once
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    raise SystemExit(lib.shmb_end_as(Compilation(options).run()))

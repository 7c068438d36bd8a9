"""shmbridge run: an unmodified compiler whose decisions a model makes."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from shmbridge import _config, llvm
from shmbridge.cli.model import Model, OnnxModel, load_python
from shmbridge.cli.supervise import Count, Pipes, Policy, Signals, die_of
from shmbridge.errors import InvalidError

DEADLINE = 10.0  # seconds
CONNECT = 1.0  # seconds to wait for a host that should be there: at most a second is lost for each channel if it has died


class Decisions(click.ParamType):  # type: ignore[type-arg,unused-ignore] # click < 8.4 has it without arguments
    """Names of decisions, separated by commas."""

    name = "decisions"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        names = value.split(",") if isinstance(value, str) else value
        for name in names:
            if name not in llvm.DECISIONS:
                self.fail(
                    f"{name!r}: expected some of {', '.join(llvm.DECISIONS)}, separated by commas",
                    param,
                    ctx,
                )
        return list(names)


class Default(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """DECISION=VALUE."""

    name = "default"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        decision, _, advice = str(value).partition("=")
        try:
            llvm.check_default(decision, advice)
        except InvalidError as error:
            self.fail(str(error), param, ctx)
        return decision, advice


def runner_url(name: str, deadline: float) -> str:
    """The URL of a runner at a bridge's name or URL, with these options unless the URL has them."""
    url, _, query = (name if "://" in name else f"shm://{name}").partition("?")
    options = dict(option.partition("=")[::2] for option in query.split("&") if option)
    options.setdefault("connect_timeout", str(CONNECT))
    if deadline:
        options.setdefault("deadline", f"{deadline:.9f}")
    return f"{url}?{'&'.join(f'{key}={value}' for key, value in options.items())}"


class Preload:
    """The channels are runners inside the compiler: the environment that makes them so, and the file where each tells what it
    was asked, which has no name."""

    def __init__(self, url: str, defaults: Mapping[str, str]) -> None:
        library = _config.preload()
        if not library.exists() or set(str(library)) & set(" :"):
            raise click.ClickException(
                f"expected {library}, in a path without spaces or colons: reinstall shmbridge, or say --pipes"
            )
        self._base = f"{tempfile.gettempdir()}/shmbridge-{os.getpid()}-{secrets.token_hex(8)}"
        self._report = os.memfd_create("shmbridge-report")
        old = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
        self.environment = {
            "LD_PRELOAD": ":".join([str(library), *(path for path in old if path != str(library))]),
            "SHMBRIDGE_LLVM_BASE": self._base,
            "SHMBRIDGE_URL": url,
            "SHMBRIDGE_LLVM_DEFAULTS": ",".join(
                f"{key}={value}" for key, value in defaults.items()
            ),
            "SHMBRIDGE_LLVM_REPORT": f"/proc/{os.getpid()}/fd/{self._report}",
        }

    def base(self, decision: str) -> str:
        """The path of a decision's channel, without .in and .out. No file is there."""
        return f"{self._base}.{decision}"

    def counts(self) -> list[Count]:
        """What was asked so far, for each channel that was closed."""
        found = []
        for line in (
            os.pread(self._report, os.fstat(self._report).st_size, 0)
            .decode(errors="replace")
            .splitlines()
        ):
            decision, asked, defaulted, _status, why = line.split(" ", 4)
            found.append(Count(decision, int(asked), int(defaulted), why))
        return found

    def close(self) -> None:
        """Removes the report."""
        os.close(self._report)


def summary(counts: Iterable[Count]) -> tuple[str, int]:
    """One line, and how many took the default advice."""
    sums: dict[str, Count] = {}
    for count in counts:
        sums.setdefault(count.decision, Count(count.decision)).add(
            count.asked, count.defaulted, count.why
        )
    asked, defaulted = sum(c.asked for c in sums.values()), sum(c.defaulted for c in sums.values())
    reasons = "; ".join(
        f"{c.defaulted} of {c.asked} {c.decision}: {c.why}" for c in sums.values() if c.defaulted
    )
    line = f"shmbridge: {defaulted} of {asked} decisions took the default advice"
    return f"{line} ({' '.join(reasons.split())})" if reasons else line, defaulted


def load_policy(onnx: Path | None, function: str | None, record: Path | None) -> Model:
    """The policy, in its own process; what it advises goes to the training log `record`, whole when the process ends."""
    model = OnnxModel(onnx) if onnx else load_python(str(function), "--host")

    def policy(request: Mapping[str, Any]) -> Any:
        return llvm.rounded(model(request))

    if record is None:
        return policy
    from shmbridge.training_log import LogWriter, recorded

    log = LogWriter(record, warn=lambda text: click.echo(f"shmbridge: {record}: {text}", err=True))
    atexit.register(log.close)
    return recorded(policy, log)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--llvm",
    "decisions",
    type=Decisions(),
    required=True,
    metavar="DECISIONS",
    help="What to ask about: inline, evict (register allocation), priority (of live ranges); separated by commas.",
)
@click.option(
    "--host",
    "function",
    metavar="MODULE:FUNCTION",
    help="The policy: a function from a mapping of features to advice; the current directory is searched first.",
)
@click.option(
    "--onnx",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The policy: an ONNX model, whose input names are the features'.",
)
@click.option(
    "--connect", metavar="NAME", help="The policy: a host that runs already, by its name or URL."
)
@click.option(
    "--default",
    "defaults",
    type=Default(),
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
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep features and advice in LLVM's training log format: LOG, LOG.2, …, one for each decision and compiler.",
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
    type=click.Choice(list(llvm.MAKES)),
    help="Which compiler it is, where its name does not tell.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Say how many decisions were asked for, also if all is well.",
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMPILER [ARGUMENTS]..."
)
def run(
    decisions: list[str],
    function: str | None,
    onnx: Path | None,
    connect: str | None,
    defaults: tuple[tuple[str, str], ...],
    deadline: float,
    record: Path | None,
    pipes: bool,
    include_default: bool,
    kind: str | None,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Run an unmodified clang, opt, llc or rustc, whose decisions a policy makes; ends with the compiler's own status.

    Also as a launcher: make -j4 CC="shmbridge run --llvm inline --host policy:advise -- clang-22". The policy's request also holds
    "decision" (inlining_decision, index_to_evict or priority) and "context", the function's name where LLVM tells it. A
    policy that fails, hangs or dies is replaced by a default advice, and one line on stderr counts these. opt gets an inliner
    pass unless it is told its -passes; with --pipes, which threads cannot share, rustc gets -Ccodegen-units=1.
    """
    if [function, onnx, connect].count(None) != 2:
        raise click.UsageError(
            "expected one policy: --host MODULE:FUNCTION, --onnx FILE or --connect NAME"
        )
    if connect and record:
        raise click.UsageError(
            f"--record goes with --host or --onnx; tap a host with: shmbridge record {connect} NAME LOG"
        )
    for decision, advice in defaults:
        if decision not in decisions:
            raise click.UsageError(
                f"--default {decision}={advice}: expected {decision} in --llvm {','.join(decisions)}"
            )
    kind = kind or llvm.kind_of(command[0])
    decisions = llvm.asked_of(kind, decisions)
    compiler = shutil.which(command[0])
    if compiler is None:
        click.echo(f"shmbridge: {command[0]}: no such compiler", err=True)
        raise SystemExit(127)
    signals, chosen = Signals(), dict(defaults)
    with signals.forwarded(), ExitStack() as stack:
        if connect is None:
            policy = Policy(partial(load_policy, onnx, function, record))
            stack.callback(policy.close)
            connect = policy.name
        url = runner_url(connect, deadline)
        channels = Pipes(decisions, url, chosen) if pipes else Preload(url, chosen)
        stack.callback(channels.close)
        bases = {decision: channels.base(decision) for decision in decisions}
        arguments = llvm.with_flags(list(command), kind, bases, include_default, pipes)
        status = signals.run(arguments, os.environ | channels.environment)
        line, defaulted = summary(channels.counts())
        if defaulted or verbose:
            click.echo(line, err=True)
    if status < 0:
        die_of(-status)
    raise SystemExit(status)

"""The command `shmbridge`: one module per subcommand, imported on demand, because `run` starts with
every compiler."""

import errno
import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

import shmbridge
from shmbridge.cli._text import one_line
from shmbridge.errors import ShmbridgeError

COMMANDS = ["demo", "serve", "stop", "run", "tune", "record", "export", "relay", "ls"]
COMMANDS += ["inspect", "gc", "compile", "config", "embed"]
MODULES = {"record": "relay", "ls": "list", "gc": "list"}  # of commands whose name is no module
# Of a write; other errors name a file or a call.
UNWRITTEN = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


class _Commands(click.Group):
    """Errors that are no fault of the program end it with one line on stderr and status 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"shmbridge.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # a signal before there was anything to end in order
            raise SystemExit(130) from None
        except (ShmbridgeError, OSError) as error:
            if isinstance(error, OSError) and error.errno in UNWRITTEN and not error.filename:
                raise
            raise click.ClickException(one_line(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(shmbridge.__version__, message="%(version)s")
@click.option("--begun", type=int, hidden=True)
def main(begun: int | None) -> None:
    """Let a compiler ask a machine-learning model for advice, through shared memory.

    Start with: shmbridge demo
    """
    if begun is not None:  # cdef/launcher compiles without us if this never comes
        signal.alarm(0)
        os.write(begun, b"\n")
        os.close(begun)


def program() -> None:
    """The command, by whatever name it was started: cdef/launcher starts it as shmbridge-python."""
    if sys.stdout is None:  # it is closed; cdef/launcher does the same
        works = sys.argv[1:2] in (["run"], ["serve"], ["relay"])
        os.dup2(os.open(os.devnull, os.O_RDWR if works else os.O_RDONLY), 1)
        os.set_inheritable(1, True)  # what was opened may be 1 already
        sys.stdout = os.fdopen(1, "w")
    try:
        main(prog_name="shmbridge")  # click ends quietly where whoever read has seen enough
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries again at its end
        sys.exit(f"Error: stdout or a file cannot be written: {error}")

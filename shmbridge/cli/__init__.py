"""The command `shmbridge`: one module for each of its commands."""

from __future__ import annotations

from typing import Any

import click

import shmbridge
from shmbridge.cli.config import config
from shmbridge.cli.demo import demo
from shmbridge.cli.list import gc, ls
from shmbridge.cli.serve import serve
from shmbridge.errors import ShmbridgeError


class _Commands(click.Group):
    """Errors that are no fault of the program end it with one line on stderr and status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read our output has seen enough: click ends quietly
            raise
        except (ShmbridgeError, OSError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(shmbridge.__version__, message="%(version)s")
def main() -> None:
    """Lets a compiler ask a machine-learning model for advice, through shared memory.

    Begin with: shmbridge demo
    """


for command in (demo, serve, ls, gc, config):
    main.add_command(command)

"""shmbridge embed: builds the library with which C programs run Python in their own process."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from shmbridge.cli._option_types import FILE
from shmbridge.cli._signals import handle


@click.command()
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="The library to write; C programs then need SHMBRIDGE_PYTHON_LIBRARY=FILE.  [default: "
    "next to libshmbridge.so]",
)
def embed(output: Path | None) -> None:
    """Build libshmbridge-python.so, so that C and C++ programs can use python://, grpc:// and all
    other runners of this Python.

    When a program opens such a URL, libshmbridge.so loads this library, which starts this
    interpreter with its packages in the program's process. You can also link the program to it. It
    needs a C compiler ($CC, or cc), Python's headers and Python's shared library. Build it again
    after an update of Python or shmbridge.
    """
    from shmbridge._embedding.build import build

    handle(signal.default_int_handler)  # the folder it works in goes, however this ends
    click.echo(build(output))

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
    help="Where to write it; C programs then need SHMBRIDGE_PYTHON_LIBRARY=FILE.  [default: "
    "beside libshmbridge.so]",
)
def embed(output: Path | None) -> None:
    """Build libshmbridge-python.so, so that C and C++ programs have python://, grpc:// and every
    other runner of this Python.

    It is loaded by libshmbridge.so when such a URL is opened, and starts this interpreter, with its
    packages, in the program's process. A program may also be linked to it instead. Needs a C
    compiler ($CC, or cc), Python's headers and its shared library. Build it again after an update
    of Python or shmbridge.
    """
    from shmbridge._embedding.build import build

    handle(signal.default_int_handler)  # the folder it works in goes, however this ends
    click.echo(build(output))

"""shmbridge embed: writes down which Python C programs start in their own process."""

from pathlib import Path

import click

from shmbridge.cli._option_types import FILE


@click.command()
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="The file to write; C programs then need SHMBRIDGE_PYTHON=FILE.  [default: next to "
    "libshmbridge.so]",
)
def embed(output: Path | None) -> None:
    """Let C and C++ programs use python://, grpc:// and similar URLs.

    When a program opens such a URL, the C library starts this interpreter with its packages in the
    program's process. This needs Python's shared library. Repeat it after an update to another
    minor version of Python.
    """
    from shmbridge._embedding import write

    click.echo(write(output))

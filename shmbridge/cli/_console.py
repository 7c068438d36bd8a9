"""Where the commands print."""

import sys

from rich import markup
from rich.console import Console

from shmbridge.errors import printable


def console() -> Console:
    """Standard output. Where that is no terminal, lines are long enough that no table is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def escape(text: str) -> str:
    """Text from outside, for a place in markup."""
    return markup.escape(printable(text))

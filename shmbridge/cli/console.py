"""Where the commands print."""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    """Standard output. Where that is no terminal, lines are long enough that no table is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)

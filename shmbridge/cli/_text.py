"""Text from outside, in a form that is safe to print."""

import logging

import click

from shmbridge.errors import printable


def one_line(error: BaseException) -> str:
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    return printable(" ".join(text.split())) or type(error).__name__


def log_to(handler: logging.Handler, verbose: bool) -> None:
    """Shows a model's exceptions there, with tracebacks if verbose."""
    handler.setFormatter(_Lines(verbose))
    logging.getLogger("shmbridge").addHandler(handler)


class _Lines(logging.Formatter):
    """Log records that are safe to print; without tracebacks unless verbose."""

    def __init__(self, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        text = printable(record.getMessage())
        if not record.exc_info:
            return text
        if not self._verbose:
            return f"{text} (-v shows where)"
        where = self.formatException(record.exc_info)
        return "\n".join([text, *map(printable, where.split("\n"))])

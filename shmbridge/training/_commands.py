"""Compile commands, as compile_commands.json has them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shmbridge._llvm import compilers
from shmbridge.errors import InvalidError

# What a compile command says of its own input and output: which task runs it says that anew. Those
# of the first kind have an argument.
WITH_ARGUMENT = {"-o", "-MF", "-MT", "-MQ", "-MJ"}
ALONE = {"-c", "-MD", "-MMD", "-MP", "-MG", "-M", "-MM"}


def entry(command: Any, chosen: Sequence[str] | None = None) -> tuple[Path, tuple[str, ...], Path]:
    """Source, flags and folder of a compile command; `chosen`: flags in place of its own."""
    folder = Path(command["directory"]).absolute()
    source = Path(os.path.normpath(folder / command["file"]))
    if chosen is not None:
        return source, words_in(chosen), folder
    words = words_in(command.get("arguments") or shlex.split(command["command"]))
    if os.path.basename(words[0]) in compilers.CACHES:
        words = words[1:]
    flags: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word in WITH_ARGUMENT:
            next(rest, None)
        elif (
            word not in ALONE
            and word != command["file"]
            and not word.startswith(("-o", "-MF", "-MT", "-MQ"))
        ):
            flags.append(word)
    return source, tuple(flags), folder


def words_in(found: Any) -> tuple[str, ...]:
    """A list of texts; a text itself would come apart into letters."""
    if not isinstance(found, (list, tuple)) or not all(isinstance(word, str) for word in found):
        raise InvalidError(f"expected a list of texts, found {found!r:.100}")
    return tuple(found)


def without(words: Iterable[str], delete: Sequence[str]) -> Iterator[str]:
    """The words without those that begin so; one without "=" goes with its argument."""
    rest = iter(words)
    for word in rest:
        if not word.startswith(tuple(delete)):
            yield word
        elif "=" not in word:
            next(rest, None)

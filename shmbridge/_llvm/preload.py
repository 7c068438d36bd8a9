"""How an unmodified compiler asks through a runner inside it: the preloaded library, configured by
the environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from shmbridge import _config
from shmbridge._llvm import compilers
from shmbridge._native import ffi, lib
from shmbridge.errors import ShmbridgeError


@dataclass
class Count:
    """The decisions of one kind: how many compilers asked for, how many took a default, and why the
    first one did."""

    decision: str
    asked: int
    defaulted: int
    why: str


def library() -> str:
    """The library's path. Errors: ShmbridgeError."""
    path = _config.preload()
    if not path.exists() or set(str(path)) & set(" :"):
        raise ShmbridgeError(
            f"expected {path}, in a path without spaces or colons: reinstall shmbridge, or pass "
            "--pipes"
        )
    return str(path)


def environment(
    url: str, report: str, defaults: Mapping[str, str], left: str | None
) -> dict[str, str]:
    """The variables that make a compiler ask at this URL, and append to the file `report` what it
    was asked. left: the file of `questions_left`. Errors: ShmbridgeError."""
    chosen = {"url": url, "defaults": in_words(defaults), "library": library(), "source": ""}
    fields = {name: ffi.new("char[]", os.fsencode(text)) for name, text in chosen.items()}
    run = ffi.new("shmb_run *", {**fields, "deadline": -1.0})
    counter = ffi.NULL if left is None else os.fsencode(left)
    made = ffi.gc(lib.shmb_run_variables(run, os.fsencode(report), counter), lib.free)
    return dict(text.split("=", 1) for text in compilers.texts(made))


def in_words(defaults: Mapping[str, str]) -> str:
    """Default advice as --default says it, separated by commas."""
    return ",".join(f"{decision}={advice}" for decision, advice in defaults.items())


def questions_left(limit: int) -> bytes:
    """The content of the file that $SHMBRIDGE_LLVM_LIMIT names."""
    return limit.to_bytes(8, sys.byteorder)


def counts_of(report: str) -> list[Count]:
    """What a report says was asked, for each channel that was closed."""
    found = []
    for line in report.splitlines():
        decision, asked, defaulted, _, why = line.split(" ", 4)
        if decision in compilers.DECISIONS:
            found.append(Count(decision, int(asked), int(defaulted), why))
    return found

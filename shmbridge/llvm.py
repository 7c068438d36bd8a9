"""LLVM's interactive channel: the decisions that it asks about, and the flags that make a compiler ask."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from shmbridge.errors import InvalidError

# Each flag of a decision; {} is the channel: the compiler opens {}.in, then {}.out.
DECISIONS = {
    "inline": ("-enable-ml-inliner=release", "-inliner-interactive-channel-base={}"),
    "evict": ("-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base={}"),
    "priority": (
        "-regalloc-enable-priority-advisor=release",
        "-regalloc-priority-interactive-channel-base={}",
    ),
}
INCLUDE_DEFAULT = "-inliner-interactive-include-default"
OPT_PASSES = "-passes=scc-oz-module-inliner"  # opt runs no inliner unless told
ONE_UNIT = "-Ccodegen-units=1"
MAKES = {
    "clang": ("inline", "evict", "priority"),
    "opt": ("inline",),
    "llc": ("evict", "priority"),
    "rustc": ("inline", "evict", "priority"),
}
_NAME = re.compile(r"(?:.+-)?(clang|opt|llc|rustc)(?:\+\+)?(?:-(\d+)(?:\.\d+)*)?")


def kind_of(compiler: str) -> str:
    """clang (also clang++), opt, llc or rustc, by a compiler's path: "/usr/bin/clang++-22". Errors: InvalidError."""
    match = _NAME.fullmatch(os.path.basename(compiler))
    if not match:
        raise InvalidError(
            f"{compiler!r} is no compiler whose flags are known, which are {', '.join(MAKES)}, clang++, and these with a version: "
            f"name one of them, or say which it is like (--flags-for clang); for make and its like, let the compiler's "
            f'variable hold the launcher: make CC="shmbridge run … -- clang-22"'
        )
    return match[1]


def asked_of(kind: str, decisions: Iterable[str]) -> list[str]:
    """Those decisions that this kind of compiler makes. Errors: InvalidError (an unknown one, or none is left)."""
    wanted = list(dict.fromkeys(decisions))
    for decision in wanted:
        if decision not in DECISIONS:
            raise InvalidError(
                f"{decision!r} is no decision: expected some of {', '.join(DECISIONS)}"
            )
    made = [decision for decision in wanted if decision in MAKES[kind]]
    if not made:
        raise InvalidError(
            f"{kind} does not decide on {', '.join(wanted)}, only on {', '.join(MAKES[kind])}"
        )
    return made


def flags(
    kind: str, bases: Mapping[str, str], include_default: bool = False, pipes: bool = True
) -> list[str]:
    """What makes a compiler of this kind ask, each decision at its channel: {"inline": "/tmp/b"} is /tmp/b.in and /tmp/b.out.

    include_default: the inliner's features hold `inlining_default`, what LLVM itself would do. pipes: these are named pipes, which
    threads cannot share, so rustc gets one codegen unit.
    """
    plain = [flag.format(base) for decision, base in bases.items() for flag in DECISIONS[decision]]
    if include_default and "inline" in bases:
        plain.append(INCLUDE_DEFAULT)
    if kind == "clang":
        return [word for flag in plain for word in ("-mllvm", flag)]
    if kind == "rustc":
        return ["-Cllvm-args=" + " ".join(plain), *([ONE_UNIT] if pipes else [])]
    return plain


def with_flags(
    command: list[str],
    kind: str,
    bases: Mapping[str, str],
    include_default: bool = False,
    pipes: bool = True,
) -> list[str]:
    """The command, asking; arguments as `flags`. opt gets an inliner to run if it has no passes; clang does not warn of flags where
    it only links. Errors: InvalidError (LLVM before 22 gets include_default wrong)."""
    compiler, *words = command
    match = _NAME.fullmatch(os.path.basename(compiler))
    if include_default and match and match[2] and int(match[2]) < 22:
        raise InvalidError(
            f"{compiler}: LLVM before 22 writes inlining_default into another feature: leave --include-default out, or use LLVM 22"
        )
    added = flags(kind, bases, include_default, pipes)
    if kind == "rustc":  # the last number of units counts
        return [compiler, *words, *added]
    if kind == "clang" and words[:1] == ["-cc1"]:
        return [compiler, "-cc1", *added, *words[1:]]
    if kind == "clang" and words[:1] == ["-cc1as"]:
        return command
    if kind == "clang":
        added = ["--start-no-unused-arguments", *added, "--end-no-unused-arguments"]
    if kind == "opt" and not any(re.match(r"--?(passes|p)\b", word) for word in words):
        added.append(OPT_PASSES)
    return [compiler, *added, *words]


def check_default(decision: str, text: str) -> None:
    """May `text` be advised where the model has nothing to say? Errors: InvalidError."""
    if decision not in DECISIONS:
        raise InvalidError(f"{decision!r} is no decision: expected some of {', '.join(DECISIONS)}")
    expected = {"inline": "0 or 1", "evict": "0 to 32", "priority": "a finite number"}[decision]
    try:
        value = (
            float(text)
            if re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", text)
            else math.nan
        )
    except OverflowError:
        value = math.inf
    most = {"inline": 1, "evict": 32}.get(decision)
    if not math.isfinite(value) or (most is not None and value not in range(most + 1)):
        raise InvalidError(f"{decision}={text}: expected {expected}")


def rounded(advice: Any) -> Any:
    """A model's advice, its numbers rounded to float32: a priority is one, and what is lost does not matter there, but would
    make the advice inexact. One number comes back as Python's."""
    if isinstance(advice, (float, np.floating)):
        return float(np.float32(advice))
    if isinstance(advice, np.ndarray) and advice.dtype.kind == "f":
        return advice.astype(np.float32) if advice.size != 1 else float(np.float32(advice.item()))
    return advice

"""Compiles a source to bitcode before LLVM's passes, with the flags that compile the bitcode as the
source would be, in two of the files of ml-compiler-opt's format: NAME.bc and NAME.cmd."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from shmbridge._jobs import supervised
from shmbridge._llvm import commands
from shmbridge.errors import ShmbridgeError

SECONDS = 600.0
PRODUCTS = {"-emit-obj", "-emit-llvm", "-emit-llvm-bc", "-S"}
# The order of uses is part of what passes see: clang's driver keeps it too.
BITCODE = ["-emit-llvm-bc", "-emit-llvm-uselists", "-disable-llvm-passes"]


def compile_source(words: Sequence[str], source: Path, to: Path, folder: Path) -> None:
    """Compiles a source, unless its bitcode is newer than all that it was made from.

    Args:
        words: A clang and its flags.
        source: The source.
        to: The path of NAME.
        folder: Where the compiler runs.

    Raises:
        ShmbridgeError: It does not compile, or these are not the words of a clang.
        OSError: A file cannot be written.
    """
    program, *step = _frontend([*words, "-c", str(source), "-o", "output"], folder)
    bitcode, command, made_from = (Path(f"{to}.{ending}") for ending in ("bc", "cmd", "d"))
    flags = b"\0".join(os.fsencode(word) for word in _kept(step))
    known = command.is_file() and command.read_bytes() == flags
    if known and _newer(bitcode, made_from, source):
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    made = [word for word in step if word not in PRODUCTS]
    made[made.index("-o") + 1] = str(bitcode)
    dependencies = ["-dependency-file", str(made_from), "-MT", "bitcode", "-sys-header-deps"]
    job = [program, "-cc1", *BITCODE, *dependencies, *made[1:]]
    report, _ = supervised.run(job, cwd=folder, seconds=SECONDS)
    if report.failure:
        lines = [] if report.limit else report.stderr.splitlines()
        error = next((line for line in lines if "error:" in line), "")
        raise ShmbridgeError(error or f"{report.failure}: {report.stderr[-200:]}")
    command.write_bytes(flags)  # last: the rest is complete


def _frontend(words: Sequence[str], folder: Path) -> list[str]:
    """The command of clang's front end that these words run."""
    steps = [step for step in commands.steps(words, folder) if step[1:2] == ["-cc1"]]
    if len(steps) != 1:
        raise ShmbridgeError(
            f"expected a clang that compiles a source in one step, found: {shlex.join(words)}"
        )
    return steps[0]


def _kept(step: Sequence[str]) -> Iterator[str]:
    """The flags that -fembed-bitcode puts into objects, from where ml-compiler-opt takes them."""
    rest = iter(step[:-1])
    for word in rest:
        if word in ("-o", "-x"):
            next(rest)
        elif not word.startswith("-W"):
            yield word


def _newer(made: Path, made_from: Path, source: Path) -> bool:
    """Whether a file is newer than all that a Makefile's rule says it was made from."""
    try:
        rule = made_from.read_text(errors="surrogateescape").partition(":")[2]
        words = re.findall(r"(?:\\[ #]|\S)+", rule.replace("\\\n", " "))
        paths = [re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in words]
        when = made.stat().st_mtime_ns
        return str(source) in paths and all(os.stat(path).st_mtime_ns < when for path in paths)
    except (OSError, ValueError):
        return False

"""A compiler's command: its program, what it would run, and the files that it reads and makes."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from shmbridge._native import ffi, lib


def _program(compiler: str) -> Any:
    path = ffi.new("char[]", lib.SHMB_PROGRAM_BYTES)
    return path if lib.shmb_program_find(os.fsencode(compiler), path) else ffi.NULL


def preloads(compiler: str, launchers: Iterable[str] = ()) -> bool:
    """Whether the preloaded library can be loaded into this compiler: not into a script, a static
    program, or one that uses another libc, nor behind a launcher that would fail with it."""
    path = _program(compiler)
    before = filter(None, map(_program, launchers))
    return bool(path and lib.shmb_program_preloads(path)) and not any(
        map(lib.shmb_program_refuses, before)
    )


def reads_stdin(kind: str, words: Sequence[str]) -> bool:
    """Does a compiler with these arguments read its standard input though no word says so?"""
    named = [word for before, word in pairwise(["", *words]) if before != "-o"]
    return kind in ("opt", "llc") and not any(map(os.path.exists, named)) and not sys.stdin.isatty()


def remove_outputs(kind: str, command: Sequence[str], began: int) -> list[str]:
    """Removes the files that this command has made since then, in nanoseconds, and returns their
    names."""
    compiler, *words = command
    made = _behind("-o", words)
    if kind == "clang":  # which prints its steps, each with the names of all its files
        named = [word for step in steps(command) for word in step]
        made += [*named, *(word.partition("=")[2] for word in named)]
    elif kind == "rustc" and not made:
        folders = _behind("--out-dir", words)
        names = output_of([compiler, "--print=file-names", *words]).split("\n")
        made = [os.path.join(*folders[-1:], name) for name in names if name]
    elif kind == "ld.lld" and not made:
        made = ["a.out"]
    removed = []
    for name in dict.fromkeys(made):
        with contextlib.suppress(OSError):
            if os.path.isfile(name) and os.stat(name).st_mtime_ns > began:
                os.remove(name)
                removed.append(name)
    return removed


def _behind(flag: str, words: Iterable[str]) -> list[str]:
    return [word for before, word in pairwise(words) if before == flag]


def steps(command: Sequence[str], folder: Path | None = None) -> list[list[str]]:
    """The commands that this command of clang would run in a folder."""
    compiler, *words = command
    lines = output_of([compiler, "-###", *words], folder).splitlines()
    quoted = [re.findall(r'"((?:[^"\\]|\\.)*)"', line) for line in lines if line[:2] == ' "']
    return [[re.sub(r"\\(.)", r"\1", word) for word in step] for step in quoted]


def output_of(
    command: Sequence[str],
    folder: Path | None = None,
    timeout: float = 60,
    stderr: int = subprocess.STDOUT,
) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=stderr,
            errors="replace",
            timeout=timeout,
        ).stdout
    return ""


def source_of(words: Iterable[str], or_output: bool = True) -> str:
    """What a command line compiles: its only source file; "": unknown. or_output: else what it
    makes."""
    made = [ffi.new("char[]", os.fsencode(word)) for word in expanded(words)]
    source = lib.shmb_compiler_source(ffi.new("char *[]", [*made, ffi.NULL]), or_output)
    return os.fsdecode(ffi.string(source))


def expanded(words: Iterable[str], depth: int = 8) -> list[str]:
    """And what stands in response files, each "@FILE", which may name others. A pipe is the
    compiler's to read."""
    found = []
    for word in words:
        found.append(word)
        if word.startswith("@") and depth and os.path.isfile(word[1:]):
            with contextlib.suppress(OSError, ValueError):
                text = Path(word[1:]).read_text(errors="replace")
                found += expanded(shlex.split(text), depth - 1)
    return found

"""The folder in which a model is compiled, and its commands."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from shmbridge import _config
from shmbridge._compile.wrap import Port
from shmbridge._jobs import supervised
from shmbridge.errors import ShmbridgeError, UnsupportedError

TAIL = 30  # lines of a failed command's output that are shown


class CompileError(ShmbridgeError):
    """A model cannot be compiled: the text has the command that failed and its output."""


@dataclass
class BuildDirectory:
    """One model to compile. sizes: the sizes of open dimensions, by name. signature: of a
    SavedModel."""

    model: Path
    folder: Path
    sizes: dict[str, int] = field(default_factory=dict)
    signature: str | None = None

    def run(self, *command: str | Path, environment: dict[str, str] | None = None) -> str:
        """What the command printed. environment: more variables. Errors: CompileError."""
        words = [str(word) for word in command]
        limits = {"seconds": math.inf, "memory": sys.maxsize}
        report, output = supervised.run(words, cwd=self.folder, environment=environment, **limits)
        stdout = output.decode(errors="replace")
        if report.failure:
            said = "\n".join(f"{stdout}{report.stderr}".strip().splitlines()[-TAIL:])
            raise CompileError(f"{shlex.join(words)}: failed: {report.failure}:\n{said}")
        return stdout

    def link(self, built: Built) -> Path:
        """Compiles what a source made to a library. $CFLAGS or $CXXFLAGS, and $LDFLAGS, are
        heeded."""
        library = self.folder / "model.so"
        language = "c" if built.source.suffix == ".c" else "c++"
        own = os.environ.get("CFLAGS" if language == "c" else "CXXFLAGS", "")
        flags = ["-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-math-errno", "-w"]
        words = [*compiler(language), *flags, *shlex.split(own), *shlex.split(_config.cflags())]
        made = [built.source, "-o", library, *built.link]
        self.run(*words, *made, *shlex.split(os.environ.get("LDFLAGS", "")), "-lm")
        return library


@dataclass
class Built:
    """What a source made of a model: the C or C++ to compile in the job's folder, with what it is
    linked with; the ports; the original, asked with arrays in the order of its
    inputs, and what runs it."""

    source: Path
    inputs: list[Port]
    outputs: list[Port]
    reference: Callable[[Sequence[Any]], Sequence[Any]]
    runtime: str
    link: Sequence[str | Path] = ()
    separate: bool = True  # may a forked process ask?


def compiler(language: str = "c") -> list[str]:
    """$CC or $CXX as a list of words, else the first compiler found. UnsupportedError says that
    there is none."""
    variable, names = (
        ("CC", ("cc", "gcc", "clang")) if language == "c" else ("CXX", ("c++", "g++", "clang++"))
    )
    found = (
        shlex.split(os.environ.get(variable, ""))
        or [name for name in names if shutil.which(name)][:1]
    )
    if not found or not shutil.which(found[0]):
        raise UnsupportedError(
            f"expected a compiler, {' or '.join(names)}, found no "
            f"{found[0] if found else 'such'}: install gcc, or set ${variable}"
        )
    return found


def need(module: str, what: str, install: str) -> Any:
    """The module, imported. UnsupportedError says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{what} needs {module.partition('.')[0]} in this Python: pip install {install} "
            f"({error})"
        ) from error

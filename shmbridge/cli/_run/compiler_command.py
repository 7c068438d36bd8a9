"""The compiler behind launchers, and the caches that would answer in its place.

A model's advice is no input that a cache knows: an object from it may be another model's. So
`shmbridge run` goes round what keeps objects (ccache, sccache) and what has them made on other
machines, which have no model (distcc).
"""

import os
import shutil
from collections.abc import Sequence

from shmbridge._llvm import compilers

LAUNCHERS = set(
    "chrt env ionice nice nohup numactl setarch setsid stdbuf taskset time timeout".split()  # noqa: SIM905
)
BYPASSED = compilers.CACHES | {"distcc", "icecc"}


def split(command: Sequence[str], kind: str | None = None) -> tuple[list[str], list[str]]:
    """The words before the compiler, without bypassed launchers; and the compiler with its
    arguments: ccache nice -n 5 clang -c x.c gives (nice -n 5, clang -c x.c). Programs, their
    options, and VARIABLE=value may precede the compiler.

    The compiler is the first word with the name of one. With `kind`, it is otherwise the first
    program that is no launcher, or the whole command. Errors: InvalidError (a build tool, which
    starts other compilers).
    """
    before: list[str] = []
    program = previous = ""
    for at, word in enumerate(command):
        name = os.path.basename(word)
        if not word.startswith("-") and "=" not in word:
            starts_another = name in LAUNCHERS | BYPASSED
            known = kind and not starts_another and shutil.which(word)
            if known or (kind is None and compilers.is_compiler(name)):
                return before, list(command[at:])
            if name in compilers.BUILD_TOOLS:
                compilers.kind_of(name)
            if starts_another or shutil.which(word):
                program = name
            # After a flag it may be its argument.
            elif program not in LAUNCHERS and not previous.startswith("-"):
                break
        if program not in BYPASSED:
            before.append(word)
        previous = word
    return [], list(command)

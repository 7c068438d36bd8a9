"""A page of the documentation as a program: its fenced blocks, in order, in one folder and one
shell.

The first word behind ``` is the language: sh, python, c and cpp are run, others are text. What
follows says how:

    file=NAME       the block is a file of that name, for blocks that follow
    background      python, c or cpp: a program that runs beside the rest; what follows waits until
                    it serves
    part            C or C++: the body of main, behind tests/docs/part.h or part.hpp
    needs=NAMES     skipped without these commands or Python modules (cmake,torch)
    skip=REASON     never run: another-machine, installs, slow, ...
    output          what the block before has printed; ... stands for anything

The shell's $CLONE is the checkout.
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
BLOCK = re.compile(r"^( *)```(\w+)([^\n`]*)\n(.*?)^\1``` *$", re.MULTILINE | re.DOTALL)
COMPILE = {
    "c": "cc -std=c11 -D_GNU_SOURCE -Wall -Wno-unused -Wextra -Werror",
    "cpp": "c++ -std=c++17 -Wall -Wno-unused -Wextra -Werror",
}
START = """
set -euo pipefail
export XDG_STATE_HOME=$PWD/.state # where serve --background says who it is
export XDG_CACHE_HOME=$PWD/.cache # where tune stores results
trap '{ kill $(jobs -p) $(cut -d" " -f1 .state/shmbridge/*.pid); wait; } 2>/dev/null || true' EXIT
served() { ls /dev/shm | grep '^shmb\\.[^~]*$' | grep -vcE -- '-[0-9]+$' || true; }
serve() {
    local before=$(served)
    "$@" & for i in {1..200}; do [ "$(served)" -gt "$before" ] && return; sleep .1; done; exit 1
}
"""


@dataclass
class Block:
    """A fenced block: its place in the page, language, words behind that, and text."""

    line: int
    language: str
    words: list[str]
    text: str

    def word(self, name):
        """What stands behind NAME= in the words; "" for a bare one."""
        return next(
            (word[len(name) + 1 :] for word in self.words if word.partition("=")[0] == name), None
        )

    @property
    def runs(self):
        """Is it more than text, and not skipped on this machine?"""
        needs = filter(None, (self.word("needs") or "").split(","))
        missing = any(shutil.which(name) is None and find_spec(name) is None for name in needs)
        program = self.language in (*COMPILE, "sh", "python") or self.word("file")
        return bool(program) and self.word("skip") is None and not missing

    @property
    def source(self):
        """As a file of its own."""
        if self.word("part") is None:
            return self.text
        head = (HERE / f"part.{'h' if self.language == 'c' else 'hpp'}").read_text()
        return f"{head}int main(void) {{\n{self.text}}}\n"


def blocks(page):
    """The fenced blocks of a page; those of a list item without their indentation."""
    text = page.read_text()
    return [
        Block(
            text.count("\n", 0, match.start()) + 1,
            match[2],
            match[3].split(),
            re.sub(f"^{match[1]}", "", match[4], flags=re.M),
        )
        for match in BLOCK.finditer(text)
    ]


def command(block, folder):
    """The shell's words for a block; writes its file."""
    if block.language == "sh" and block.word("file") is None:
        return block.text
    suffix = {"python": "py", "sh": "sh"}.get(block.language, block.language)
    file = folder / (block.word("file") or f"line_{block.line}.{suffix}")
    file.parent.mkdir(parents=True, exist_ok=True)
    if not block.word("file"):
        file.write_text(block.source)
    else:  # only now: a page may show a second state of it
        return f"cat >{shlex.quote(str(file))} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK"
    serve = "serve " if block.word("background") is not None else ""
    if block.language == "python":
        return f"{serve}python {file.name}"
    return (
        f"{COMPILE[block.language]} {file.name} $(shmbridge config --cflags --libs) -o "
        f"{file.stem}\n{serve}./{file.stem}"
    )


def script(page, folder):
    """The page as a shell script, which leaves what block i prints in out.i."""
    parts = [START]
    for i, block in enumerate(page):
        if block.runs:
            parts.append(f"echo 'line {block.line}' >&2\n{{\n{command(block, folder)}\n}} >out.{i}")
    return "\n".join(parts)


def prints(page, folder):
    """Where a block did not print what the page says, and what it printed."""
    wrong = []
    for i, block in enumerate(page):
        if block.word("output") is None or not (folder / f"out.{i - 1}").exists():
            continue
        found, expected = (
            (folder / f"out.{i - 1}").read_text(),
            re.escape(block.text).replace(r"\.\.\.", ".*?"),
        )
        if not re.fullmatch(expected, found, re.DOTALL):
            wrong.append(f"line {block.line}: the block before printed\n{found}")
    return wrong

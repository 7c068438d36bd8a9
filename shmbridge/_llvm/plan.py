"""Plans: files of inlining decisions for one source, made by `shmbridge tune`.

LLVM sends neither caller nor callee. So a call site is known by a hash of its question's features,
and by how many questions with this hash came before it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from shmbridge._native import ffi, lib
from shmbridge.errors import InvalidError, printable, raise_status

MAGIC = "shmbridge plan 1"
ENDING = ".plan"
SCHEME = "plan://"  # cdef/src/model/plan.c reads the same files
# They count the whole module, so an edit anywhere would change every hash.
MODULE_WIDE = {"node_count", "edge_count"}
DEFAULT = "inlining_default"
PRIME, BITS = 0x100000001B3, (1 << 64) - 1


class Site(NamedTuple):
    """A call site, as far as its question identifies it: the n-th with this hash, from 1."""

    hash: int
    n: int


class Decision(NamedTuple):
    """The advice at a site, and a comment for people."""

    advice: int
    comment: str = ""


def question_hash(values: Iterable[int]) -> int:
    """A hash of 64 bits of a question's features, in LLVM's order, without `MODULE_WIDE`."""
    found = 0
    for value in values:
        found = (found ^ (value & BITS)) * PRIME & BITS
        found ^= found >> 32
    return found


def hashed_names(names: Iterable[str]) -> list[str]:
    """The features that identify a call site, among these."""
    return [name for name in names if name not in MODULE_WIDE | {"context", "decision"}]


class Sites:
    """The call sites of one compilation, in the order of its questions."""

    def __init__(self) -> None:
        self._seen = Counter[int]()

    def next(self, values: Iterable[int]) -> Site:
        """The site of the next question."""
        found = question_hash(values)
        self._seen[found] += 1
        return Site(found, self._seen[found])


@dataclass(frozen=True)
class Plan:
    """Decisions that differ from the compiler's own. The other fields are for people, except
    `source`, which selects a plan from several.

    Attributes:
        compiler: Its version.
        source: The source's path below the folder in which the search ran.
        sha256: Of the source file.
        command: The command that was tuned.
        score: The score's name.
        before: The score without the plan.
        after: The score with it.
        questions: How many questions the compiler asked.
        decisions: The advice by site.
    """

    compiler: str
    source: str
    sha256: str
    command: str
    score: str
    before: float
    after: float
    questions: int
    decisions: Mapping[Site, Decision]

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        whole = path.with_name(f"{path.name}.new")
        whole.write_text(self.text(), encoding="utf-8")
        whole.replace(path)

    def text(self) -> str:
        """The file's text."""
        lines = [MAGIC]
        for name in HEADER:
            value = getattr(self, name)
            text = _number(value) if name in NUMBERS else printable(value).strip()
            lines.append(f"{name}: {text}")
        lines += ["", "# decision, question's hash, occurrence, advice (1: inline)"]
        for site, decision in self.decisions.items():
            comment = printable(decision.comment).strip()
            lines.append(
                f"inline {site.hash:016x} {site.n} {decision.advice}"
                + (f"  # {comment}" if comment else "")
            )
        return "\n".join(lines) + "\n"


HEADER = [field.name for field in fields(Plan) if field.name != "decisions"]
NUMBERS = {"before", "after", "questions"}


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def read(path: Path) -> Plan:
    """Reads a plan. Errors: InvalidError, with the line; OSError."""
    with path.open("rb") as file:
        _check(path, url_of(file.fileno()))
        lines = file.read().decode().split("\n")
    head, rest = lines[1 : len(HEADER) + 1], lines[len(HEADER) + 1 :]
    header: dict[str, Any] = {
        line.partition(":")[0]: line.partition(":")[2].strip() for line in head
    }
    decisions: dict[Site, Decision] = {}
    for line in rest:
        if line.startswith("inline "):
            words, _, comment = line.partition("  # ")
            _, hashed, n, advice = words.split(" ")
            decisions[Site(int(hashed, 16), int(n))] = Decision(int(advice), comment)
    try:
        header |= {name: float(header[name]) for name in NUMBERS}
        header["questions"] = int(header["questions"])
    except (ValueError, OverflowError) as error:
        raise InvalidError(f"{path}: expected numbers in lines 7 to 9, found {error}") from None
    return Plan(**header, decisions=decisions)


def _check(path: Path, url: str) -> None:
    """Opens a plan as plan:// does, whose grammar it is."""
    out = ffi.new("shmb_runner **")
    status = lib.shmb_open(url.encode(), ffi.NULL, out)
    why = ffi.string(lib.shmb_error_message(out[0])).decode(errors="replace")
    lib.shmb_close(out[0])
    if status:
        raise_status(status, why.replace(url.removeprefix(SCHEME), str(path)))


def url_of(file: int) -> str:
    """The URL of an open plan, while this process lives: paths may have characters that URLs do not
    allow."""
    return f"{SCHEME}/proc/{os.getpid()}/fd/{file}"


# ---- Which plan ----


def below(folder: Path, source: str | os.PathLike[str]) -> str:
    """A source's path for a plan: relative to a folder, without leading ..s."""
    relative = os.path.relpath(folder / source, folder)
    return re.sub(r"^(?:\.\./)+", "", relative)


def find(paths: Sequence[Path], source: Path) -> Path | None:
    """The plan for a source, among files and folders of *.plan: the one whose source is the longest
    end of this path. None: there is none. Errors: InvalidError (two that fit alike), OSError."""
    parts = Path(os.path.abspath(source)).parts
    fits: list[tuple[int, Path]] = []
    for path in _files(paths):
        end = Path(_source_of(path)).parts
        if end and parts[-len(end) :] == end:
            fits.append((len(end), path))
    longest = max((length for length, _ in fits), default=0)
    best = [path for length, path in fits if length == longest]
    if len(best) > 1:
        raise InvalidError(
            f"{source}: expected one plan, found {best[0]} and {best[1]}: remove one"
        )
    return best[0] if best else None


def _files(paths: Sequence[Path]) -> list[Path]:
    files: dict[Path, None] = {}
    for path in paths:
        found = sorted(path.rglob(f"*{ENDING}")) if path.is_dir() else [path]
        files.update(dict.fromkeys(found))
    return list(files)


def _source_of(path: Path) -> str:
    """Only as much is read as this needs: a build looks into all plans for each file."""
    with path.open("rb") as file:
        lines = [file.readline() for _ in range(3)]
    text = b"".join(lines).decode(errors="replace").split("\n")
    if text[0] != MAGIC or len(text) < 3 or not text[2].startswith("source: "):
        return read(path).source  # which says what is wrong
    return text[2].removeprefix("source: ").strip()

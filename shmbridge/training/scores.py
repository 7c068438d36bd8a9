"""Scores of a compiler's output: functions of the output's path, for a `Task`'s `scores`."""

from __future__ import annotations

import re
import shlex
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from shmbridge._jobs import supervised
from shmbridge.errors import InvalidError

Score: TypeAlias = Callable[[Path], float]

SECONDS = 60.0  # for a tool that scores
EXTENDED = 0xFFFF  # the names' section has a number that is too large for its field
# By the class of an ELF file: where its header tells of the sections, these fields, and a
# section's.
ELF = {1: (32, "II6H", "8I"), 2: (40, "QI6H", "II4QII")}
OFFSET, SIZE, LINK = 4, 5, 6  # of a section's fields
# By the class: a symbol's fields, and which of them are its name, size, kind and section.
SYMBOL = {1: ("3I2BH", (0, 2, 3, 5)), 2: ("I2BH2Q", (0, 5, 1, 3))}
FUNCTION = 2  # a symbol's kind


def text_size(path: Path) -> float:
    """The bytes of code in an object or program: sections `.text` and `.text.*`.

    Args:
        path: An ELF file.

    Returns:
        The sum of their sizes.

    Raises:
        InvalidError: It is not an ELF file.
        OSError: It cannot be read.
    """
    sections = _sections(Path(path).read_bytes(), path)
    code = (n for name, _, n in sections if name == ".text" or name.startswith(".text."))
    return float(sum(code))


def function_sizes(path: Path) -> dict[str, float]:
    """The bytes of each function, by the names in the symbol table.

    Args:
        path: An ELF file.

    Returns:
        The sizes. Of functions with the same name, only one counts.

    Raises:
        InvalidError: It is not an ELF file.
        OSError: It cannot be read.
    """
    data, found = Path(path).read_bytes(), dict[str, float]()
    places = {name: (begin, size) for name, begin, size in _sections(data, path)}
    begin, length = places.get(".symtab", (0, 0))
    names = places.get(".strtab", (0, 0))[0]
    fields, which = SYMBOL[data[4]]
    symbol = struct.Struct({1: "<", 2: ">"}[data[5]] + fields)
    try:
        for values in symbol.iter_unpack(data[begin : begin + length]):
            name, size, kind, section = (values[i] for i in which)
            if kind & 15 == FUNCTION and section:
                at = names + name
                text = data[at : data.index(b"\0", at)]
                found[text.decode(errors="replace")] = float(size)
    except (struct.error, ValueError) as error:
        raise InvalidError(f"{path}: expected a whole ELF file: {error}") from None
    return found


def ir_instructions(path: Path) -> float:
    """The number of instructions in LLVM IR, as text or bitcode.

    Args:
        path: Output of `clang -emit-llvm` or opt. Bitcode needs llvm-dis.

    Returns:
        The number in all functions, like CompilerGym's IrInstructionCount.

    Raises:
        InvalidError: It is not IR, or llvm-dis is missing.
        OSError: It cannot be read.
    """
    text = Path(path).read_bytes()
    if text.startswith((b"BC\xc0\xde", b"\xde\xc0\x17\x0b")):
        text = _tool("llvm-dis", str(path), "-o", "-").encode()
    elif b"source_filename" not in text and b"define " not in text:
        raise InvalidError(f"{path}: expected LLVM IR, in text or in bitcode")
    functions = re.findall(rb"^define [^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return float(sum(len(re.findall(rb"^  [^\s\];]", body, re.MULTILINE)) for body in functions))


def run_time(*arguments: str, seconds: float = SECONDS) -> Score:
    """Scores a program by the CPU time of one run.

    Args:
        arguments: The program's arguments.
        seconds: Time limit of the run.

    Returns:
        A function of the program's path that returns seconds of CPU. It raises InvalidError if the
        program fails.
    """

    def score(path: Path) -> float:
        return _ran([str(path), *arguments], seconds)[0].cpu

    return score


def run_instructions(*arguments: str, seconds: float = SECONDS) -> Score:
    """Scores a program by the instructions of one run in user mode, counted by perf, or by valgrind
    if perf cannot count.

    Args:
        arguments: The program's arguments.
        seconds: Time limit of the run. Under valgrind a program takes fifty times as long.

    Returns:
        A function of the program's path that returns instructions. It raises InvalidError if the
        program fails, or neither tool can count.
    """
    ways = {
        "perf stat -x, -e instructions:u --": r"^(\d+),[^,]*,instructions",
        "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null": (
            r"I\s+refs:\s+([\d,]+)"
        ),
    }

    def score(path: Path) -> float:
        for words, pattern in ((way.split(), ways[way]) for way in ways):
            if not shutil.which(words[0]):
                continue
            report, _ = _ran([*words, str(path), *arguments], seconds)
            if match := re.search(pattern, report.stderr, re.MULTILINE):
                return float(match[1].replace(",", ""))
        raise InvalidError("expected perf with instruction counters, or valgrind: install one")

    return score


def printed(command: str | Sequence[str], pattern: str, *, seconds: float = SECONDS) -> Score:
    """Scores an output by a number that a command prints, for example
    `printed("{output} 100", r"score: (.*)")`.

    Args:
        command: A list of words, or a text that is split as in a shell; no shell runs it.
            `{output}` is the output's path.
        pattern: A regular expression. The number is its first group, at its first match in stdout
            and the last 4096 bytes of stderr; commas between digits are ignored.
        seconds: Time limit of the command.

    Returns:
        A function of the output's path. It raises InvalidError if the command fails, or prints no
        such number.
    """
    words = shlex.split(command) if isinstance(command, str) else [*map(str, command)]

    def score(path: Path) -> float:
        report, out = _ran([word.replace("{output}", str(path)) for word in words], seconds)
        text = out.decode(errors="replace") + report.stderr
        match = re.search(pattern, text, re.MULTILINE)
        found = match[1] if match else text[:100]
        try:
            return float(found.replace(",", ""))
        except ValueError:
            raise InvalidError(
                f"expected a number where {words[0]} prints {pattern}, found {found!r}"
            ) from None

    return score


# ---- Tools ----


def _tool(name: str, *arguments: str) -> str:
    """What an LLVM tool prints: the newest of the machine."""
    for version in (*(f"-{number}" for number in range(40, 14, -1)), ""):
        if shutil.which(name + version):
            return _ran([name + version, *arguments], SECONDS)[1].decode(errors="replace")
    raise InvalidError(f"expected {name}, which is not on this machine: install LLVM's tools")


def _ran(words: list[str], seconds: float) -> tuple[supervised.Report, bytes]:
    report, printed = supervised.run(words, seconds=seconds)
    if report.failure:
        raise InvalidError(f"{' '.join(words)}: {report.failure}: {report.stderr[-200:].strip()}")
    return report, printed


# ---- ELF ----


def _sections(data: bytes, path: Path) -> Iterator[tuple[str, int, int]]:
    """Names, places and sizes of an ELF file's sections."""
    if data[:4] != b"\x7fELF":
        raise InvalidError(f"{path}: expected an ELF file, found {data[:4]!r}")
    try:
        order = {1: "<", 2: ">"}[data[5]]
        at, header, section = ELF[data[4]]
        table, _, _, _, _, size, count, names = struct.unpack_from(order + header, data, at)
        read = struct.Struct(order + section)
        if not table:
            return
        if size < read.size:
            raise ValueError(f"section headers of {size} bytes")
        first = read.unpack_from(data, table)
        found = [read.unpack_from(data, table + i * size) for i in range(count or first[SIZE])]
        start = found[names if names != EXTENDED else first[LINK]][OFFSET]
        for entry in found:
            begin = start + entry[0]
            name = data[begin : data.index(b"\0", begin)].decode(errors="replace")
            yield name, entry[OFFSET], entry[SIZE]
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        raise InvalidError(f"{path}: expected a whole ELF file: {error}") from None

"""The functions of a source, in LLVM's assembly; and the file of attributes that LLVM reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

NAME = r'@("[^"]*"|[\w.$-]+)\('
DEFINITION = re.compile(rf"^define ([^\n]*?){NAME}([^\n]*)\{{\n(.*?)^\}}", re.M | re.S)
CALL = re.compile(rf"\b(?:call|invoke|callbr)\b[^\n@]*{NAME}")
GROUP = re.compile(r"^attributes (#\d+) = \{([^\n]*)\}", re.M)
# The source has decided, or LLVM does not inline: attributes, and linkage that another definition
# may replace.
DECIDED = {"noinline", "alwaysinline", "optnone", "naked", "returns_twice"}
REPLACEABLE = {"weak", "linkonce", "extern_weak"}


class Function(NamedTuple):
    """A function: whether only its source can call it, its lines of assembly, how often it calls
    each function, and whether attributes cannot change it."""

    static: bool
    size: int
    calls: Mapping[str, int]
    fixed: bool


def functions_of(assembly: str) -> dict[str, Function]:
    """The functions that LLVM's assembly defines, by name."""
    groups = {name: re.sub('"[^"]*"', "", words).split() for name, words in GROUP.findall(assembly)}
    found = {}
    for head, quoted, tail, body in DEFINITION.findall(assembly):
        name, linkage, calls = (
            _name(quoted),
            {*head.split()},
            Counter(map(_name, CALL.findall(body))),
        )
        said = {*tail.split()}.union(*(groups.get(each, ()) for each in re.findall(r"#\d+", tail)))
        # LLVM inlines neither recursive functions nor those with variable arguments.
        never = name in calls or "..." in tail or bool(re.search("[,\n\r\0]", name))
        fixed = never or bool(DECIDED & said or REPLACEABLE & linkage)
        static = bool(linkage & {"internal", "private"})
        found[name] = Function(static, body.count("\n"), calls, fixed)
    return found


def _name(quoted: str) -> str:
    """A name as it is in the object: quoted, it has escapes such as \\22."""
    data = quoted.strip('"').encode(errors="surrogateescape")
    data = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), data)
    return data.decode(errors="surrogateescape")


def file_text(attributes: Mapping[str, str], changed: Iterable[str], comment: str) -> bytes:
    """The file: a comment, which is a line without a comma; what differs from LLVM's decisions; and
    what only repeats them."""
    texts = ["# " + re.sub(r"[^ -+\--~]", " ", comment)]
    texts += [f"{name},{attributes[name]}" for name in sorted(changed)]
    if held := sorted(attributes.keys() - {*changed}):
        texts.append("# LLVM decides so itself; the lines above count on it.")
        texts += [f"{name},{attributes[name]}" for name in held]
    return "".join(f"{text}\n" for text in texts).encode(errors="surrogateescape")


def read_file(data: bytes) -> dict[str, str]:
    """The attributes in a file, by function."""
    lines = data.decode(errors="surrogateescape").split("\n")
    return dict(line.rstrip("\r").split(",", 1) for line in lines if "," in line)


def callees(functions: Mapping[str, Function]) -> list[str]:
    """The functions to which an attribute may make a difference."""
    called = {name for function in functions.values() for name in function.calls}
    return sorted(n for n, function in functions.items() if n in called and not function.fixed)

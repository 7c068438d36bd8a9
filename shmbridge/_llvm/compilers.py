"""LLVM's interactive channel: its decisions, and the flags that make a compiler ask."""

import math
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from shmbridge._llvm.commands import expanded, output_of, steps
from shmbridge._native import ffi, lib
from shmbridge.errors import InvalidError


def _text(text: Any) -> str:
    return str(ffi.string(text).decode())


def texts(made: Any) -> list[str]:
    """A list of the C core's, which ends with NULL."""
    return [_text(text) for text in takewhile(bool, map(made.__getitem__, count()))]


# What cdef/launcher knows too: cdef/src/command/compilers.h. Both flags of a decision; the
# channel's path follows the second.
DECISIONS = {
    _text(made.name): (_text(made.advisor), _text(made.channel))
    for made in takewhile(lambda d: d.name, map(lib.shmb_llvm_decisions.__getitem__, count()))
}
CACHES = set(texts(lib.shmb_caches))
BUILD_TOOLS = set(texts(lib.shmb_build_tools))
UNWARNED, WARNED = _text(lib.shmb_clang_unwarned), _text(lib.shmb_clang_warned)
_NAME = re.compile(_text(lib.shmb_compiler_name))  # groups 2 and 5: kind and version
CHANNEL_BASE = _text(lib.shmb_channel_base)
# Adds LLVM's own decision to the inliner's features, from LLVM 22 on.
INCLUDE_DEFAULT = "-inliner-interactive-include-default"
OPT_PASSES = "-passes=scc-oz-module-inliner"  # opt runs no inliner unless told
ONE_UNIT = "-Ccodegen-units=1"
ONE_JOB = ("-plugin-opt=jobs=1", "-plugin-opt=lto-partitions=1")
WASM_ONE_JOB = ("--thinlto-jobs=1", "--lto-partitions=1")
# What may keep objects of a ThinLTO link, whose keys know no flags of LLVM; an empty value: none.
LTO_CACHES = ("--thinlto-cache-dir=", "-plugin-opt=cache-dir=")
MAKES = {
    "clang": ("inline", "evict", "priority"),
    "opt": ("inline",),
    "llc": ("evict", "priority"),
    "rustc": ("inline", "evict", "priority"),
    "ld.lld": ("inline", "evict", "priority"),
}


def is_compiler(name: str) -> bool:
    """Is a program of this name a compiler whose flags are known?"""
    return _NAME.fullmatch(name) is not None


def kind_of(compiler: str) -> str:
    """clang (also clang++), opt, llc, rustc or ld.lld, by a compiler's path: "/usr/bin/clang++-22".
    Errors: InvalidError."""
    match = _NAME.fullmatch(os.path.basename(compiler))
    if not match:
        raise InvalidError(
            f"{compiler!r} is not a known compiler: expected {', '.join(MAKES)} or clang++, with "
            "or without a version. For other names pass its kind (--flags-for clang). For make and "
            "similar tools, put the launcher into the compiler's variable: "
            'make CC="shmbridge run … -- clang-22"'
        )
    return match[2]


def check_decisions(decisions: Iterable[str]) -> None:
    """Errors: InvalidError (an unknown one)."""
    for decision in decisions:
        if decision not in DECISIONS:
            raise InvalidError(
                f"unknown decision {decision!r}: expected one or more of {', '.join(DECISIONS)}"
            )


def asked_of(kind: str, decisions: Iterable[str]) -> list[str]:
    """Those decisions, each once. Errors: InvalidError (an unknown one, or one that this kind of
    compiler does not make)."""
    wanted = list(dict.fromkeys(decisions))
    check_decisions(wanted)
    if lacking := [decision for decision in wanted if decision not in MAKES[kind]]:
        raise InvalidError(
            f"{kind} does not decide on {', '.join(lacking)}, only on {', '.join(MAKES[kind])}"
        )
    return wanted


def _version_in(compiler: str) -> int:
    """LLVM's version in a compiler's name; 0: none."""
    match = _NAME.fullmatch(os.path.basename(compiler))
    return int(match[5] or 0) if match else 0


def tells_default(compiler: str) -> bool:
    """Whether its inliner can send its own decision, which needs LLVM 22. If the name has no
    version, the compiler is asked."""
    if version := _version_in(compiler):
        return version >= 22
    for option in ("-vV", "--version"):  # rustc's LLVM, all others'
        said = output_of([compiler, option], timeout=10, stderr=subprocess.DEVNULL)
        if found := re.search(r"(?:clang version|LLVM version:?|LLD) (\d+)", said):
            return int(found[1]) >= 22
    return False


def base_in_compiler(decision: str) -> str:
    """The path of a channel that the preloaded library is, without .in and .out."""
    return f"{CHANNEL_BASE}.{decision}"


def conversations(kind: str, words: Iterable[str]) -> int:
    """How many channels one command may need at once: one for each decision of each thread."""
    return 32 if kind == "rustc" or any(word.startswith("-flto") for word in words) else 8


def flags(
    kind: str, bases: Mapping[str, str], include_default: bool = False, pipes: bool = True
) -> list[str]:
    """The arguments that make a compiler of this kind ask, with each decision at its channel:
    {"inline": "/tmp/b"} is /tmp/b.in and /tmp/b.out.

    include_default: add `inlining_default`, LLVM's own decision, to the inliner's features.
    pipes: these are named pipes, which threads cannot share, so rustc gets one codegen unit, and a
    linker one job.
    """
    plain = _plain_flags(bases, include_default)
    if kind == "clang":
        return [word for flag in plain for word in ("-mllvm", flag)]
    if kind == "rustc":
        return ["-Cllvm-args=" + " ".join(plain), *([ONE_UNIT] if pipes else [])]
    if kind == "ld.lld":
        return [*(f"-plugin-opt={flag}" for flag in plain), *(ONE_JOB if pipes else ())]
    return plain


def _plain_flags(bases: Mapping[str, str], include_default: bool) -> list[str]:
    plain = []
    for decision, base in bases.items():
        advisor, channel = DECISIONS[decision]
        plain += [advisor, channel + base]
    return [*plain, INCLUDE_DEFAULT] if include_default and "inline" in bases else plain


def with_flags(
    command: list[str],
    kind: str,
    bases: Mapping[str, str],
    include_default: bool = False,
    pipes: bool = True,
) -> list[str]:
    """The command, asking; arguments as `flags`. opt gets an inliner to run if it has no passes;
    clang and rustc hand the flags on to the linker that optimises (-flto, -Clinker-plugin-lto),
    whose cache is turned off; clang does not warn of flags that its step does not need. Errors:
    InvalidError (LLVM before 22 gets include_default wrong)."""
    compiler, *words = command
    if include_default and 0 < _version_in(compiler) < 22:
        raise InvalidError(
            f"{compiler}: LLVM before 22 writes inlining_default into another feature: leave "
            "--include-default out, or use LLVM 22"
        )
    added = flags(kind, bases, include_default, pipes)
    linking = _linker_flags(kind, words, _plain_flags(bases, include_default), pipes)
    if kind == "rustc":  # the last number of units counts
        return [compiler, *words, *added, *linking]
    if kind == "clang" and words[:1] == ["-cc1"]:
        return [compiler, "-cc1", *added, *words[1:]]
    if kind == "clang" and words[:1] == ["-cc1as"]:
        return command
    if kind == "clang":
        # What the linker reads last counts.
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = _unwarned(linking)
        added = _unwarned(added)
    if kind == "ld.lld":
        words += linking
    if kind == "opt" and not any(re.match(r"--?(passes|p|O[0-3sz])\b", word) for word in words):
        added.append(OPT_PASSES)
    return [compiler, *added, *words]


def _unwarned(words: list[str]) -> list[str]:
    return [UNWARNED, *words, WARNED] if words else []


# ---- Optimisation at link time ----


def lto_of(kind: str, words: Iterable[str]) -> str:
    """Does a link with these arguments optimise, and how? "full", "thin", or "" for no."""
    found = ""
    for word in expanded(words):
        if kind == "clang" and (match := re.fullmatch(r"-f(no-)?lto(?:=(.*))?", word)):
            found = "" if match[1] else "thin" if match[2] == "thin" else "full"
        elif kind == "rustc" and (
            match := re.fullmatch(r"(?:-C|--codegen=)?linker-plugin-lto(?:=(.*))?", word)
        ):
            found = "" if match[1] in ("n", "no", "off", "false") else "thin"
    return found


def _linker_flags(kind: str, words: list[str], plain: list[str], pipes: bool) -> list[str]:
    """What clang and rustc hand on to a linker that optimises. lld and the plug-in for GNU linkers
    read the same words, wasm-ld has its own."""
    read = expanded(words)
    uncached = [cache for cache in LTO_CACHES if any(cache in word for word in read)]
    if kind == "ld.lld":
        return uncached
    if not lto_of(kind, words):
        return []
    if re.search(r"(^| )--?target[= ]wasm", " ".join(read)):
        options, jobs = [word for flag in plain for word in ("-mllvm", flag)], WASM_ONE_JOB
    else:
        options, jobs = [f"-plugin-opt={flag}" for flag in plain], ONE_JOB
    through = "-Clink-arg=" if kind == "rustc" else ""
    return [
        through + word
        for option in [*options, *(jobs if pipes else ()), *uncached]
        for word in ("-Xlinker", option)
    ]


def why_unasked(kind: str, command: Sequence[str], decisions: Iterable[str]) -> str:
    """Why a compiler that was told to ask about these decisions did not, although it made them; "":
    it made none. Looks at what clang itself would run, since flags may come from a response file, a
    configuration file or the environment."""
    words = expanded(word for step in steps(command) for word in step) if kind == "clang" else []
    words += expanded(command)
    for decision in decisions:
        advisor = DECISIONS[decision][0].partition("=")[0]
        if said := next((word for word in words if f"{advisor}=" in word), ""):
            return f"{decision}: 0 decisions, because the command says {said}"
        if any("thinlto-distributor=" in word for word in words):
            return f"{decision}: 0 decisions, because ThinLTO's distributor starts other compilers"
        if any(word.startswith("-fthinlto-index=") for word in words):
            return f"{decision}: 0 decisions, because this LLVM does not ask with -fthinlto-index"
    return ""


def unasked_at_link(kind: str, words: Iterable[str]) -> str:
    """Why a link with these arguments does not ask about inlining; "": it does, or does not
    optimise."""
    words = expanded(words)
    makes_no_program = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version"} & set(words)
    if kind != "clang" or makes_no_program or lto_of(kind, words) != "full":
        return ""
    return (
        "inline: 0 decisions, because LLVM does not ask about inlining when it links with -flto: "
        "-flto=thin also asks at the link"
    )


def check_default(decision: str, text: str) -> None:
    """Checks a default advice for a decision. Errors: InvalidError."""
    check_decisions([decision])
    kinds: dict[str, tuple[str, Callable[[float], bool]]] = {
        "inline": ("0 or 1", lambda value: value in (0, 1)),
        "evict": ("a whole number from 0", lambda value: value >= 0 and value.is_integer()),
        "priority": ("a finite number", math.isfinite),
    }
    expected, fits = kinds[decision]
    number = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", text)
    if not number or not fits(float(text)):
        raise InvalidError(f"{decision}={text}: expected {expected}")


def rounded(advice: Any) -> Any:
    """A model's advice with its numbers rounded to float32, since a priority is one, and would
    otherwise be inexact. A single number is returned as Python's."""
    import numpy as np  # takes longer than a small file to compile, and flags need none of it

    if isinstance(advice, (float, np.floating)):
        return float(np.float32(advice))
    if isinstance(advice, np.ndarray) and advice.dtype.kind == "f":
        return advice.astype(np.float32) if advice.size != 1 else float(np.float32(advice.item()))
    return advice

"""What LLVM's compilers are told: flags, defaults, links, and which compiler is which."""

import io
import os
import subprocess
from pathlib import Path

import pytest

from shmbridge._llvm import commands, compilers
from shmbridge.errors import InvalidError

CLANGS = ["clang", "clang-22", "clang++-19", "/usr/lib/llvm-19/bin/clang++"]
CLANGS += ["x86_64-linux-gnu-clang-22"]
OTHERS = [("opt-22.1", "opt"), ("llc", "llc"), ("rustc", "rustc"), ("ld.lld-22", "ld.lld")]


@pytest.mark.parametrize(("name", "kind"), [*((name, "clang") for name in CLANGS), *OTHERS])
def test_compilers_are_known_by_name(name, kind):
    assert compilers.kind_of(name) == kind


@pytest.mark.parametrize(
    "name", ["make", "gcc", "clang-format", "", "clang-", "optician", "clippy-driver"]
)
def test_others_are_not(name):
    with pytest.raises(InvalidError, match="--flags-for"):
        compilers.kind_of(name)


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ("clang -O2 -c src/a.c -o a.o", "src/a.c"),
        ("clang -cc1 -emit-obj -main-file-name a.cc -o a.o -x c++ src/a.cc", "src/a.cc"),
        ("opt in.bc -o out.bc", "in.bc"),
        ("rustc -O a.rs --crate-name a", "a.rs"),
        ("ld.lld -o program crt1.o a.o", "program"),
        ("clang -x hip -c src/a.hip -oa.o", "src/a.hip"),
        ("clang -c a.CPP -o a.o -D b.c -include c.c -MT d.c", "a.CPP"),
        ("clang -cc1 -main-file-name a.c -fopenmp-host-ir-file-path /tmp/a.bc a.c -o a.o", "a.c"),
        ("clang -cc1 -main-file-name a.c -o a.bc -x cpp-output a.i", "a.c"),
        ("clang -cc1 -main-file-name - -o a.o -x c -", "a.o"),
        ("clang -c a.C++ -o a.o", "a.C++"),
        ("clang -x c++ a.tpp -c -o a.o", "a.tpp"),
        ("clang -x c -o a.o -c a.inc", "a.inc"),
        ("ld.lld -x a.o b.o -o program", "program"),
        ("clang a.c b.c", ""),
        ("clang a.o b.o -oprogram", "program"),
        ("opt -o=a.bc", "a.bc"),
        ("clang -x c - -o", ""),
    ],
)
def test_source_is_found_in_a_command_line(words, source):
    assert commands.source_of(words.split()) == source


def test_source_is_found_in_a_response_file_of_a_response_file(tmp_path):
    (tmp_path / "outer").write_text(f"-O2 @{tmp_path}/inner")
    (tmp_path / "inner").write_text("-c 'my a.c'")
    assert commands.source_of(["clang", f"@{tmp_path}/outer"]) == "my a.c"


EVICT = ["-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base=/b"]
MLLVM = " ".join(f"-mllvm {flag}" for flag in EVICT)
PLUGIN = [f"-plugin-opt={flag}" for flag in EVICT]
UNWARNED, WARNED = "--start-no-unused-arguments", "--end-no-unused-arguments"


def asking(command, pipes=False):
    """The command with its flags for evictions, in one line."""
    words = command.split()
    return " ".join(compilers.with_flags(words, words[0], {"evict": "/b"}, pipes=pipes))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("llc x", f"llc {EVICT[0]} {EVICT[1]} x"),
        ("rustc x", f"rustc x -Cllvm-args={EVICT[0]} {EVICT[1]}"),
        ("clang -cc1 x", f"clang -cc1 {MLLVM} x"),
        ("clang -cc1as x", "clang -cc1as x"),
        ("clang", f"clang {UNWARNED} {MLLVM} {WARNED}"),
        ("ld.lld x.o", f"ld.lld {PLUGIN[0]} {PLUGIN[1]} x.o"),
    ],
)
def test_flags_stand_where_each_compiler_wants_them(command, expected):
    assert asking(command) == expected


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("rustc x", " -Ccodegen-units=1"),
        ("clang -flto x.o", f"-Xlinker -plugin-opt=lto-partitions=1 {WARNED}"),
        *(
            (
                f"clang -flto {flag}",
                f" -Xlinker --thinlto-jobs=1 -Xlinker --lto-partitions=1 {WARNED}",
            )
            for flag in ("--target=wasm32", "-target wasm32-wasi")
        ),
    ],
)
def test_threads_that_cannot_share_pipes_are_one(command, end):
    found = asking(command, pipes=True)
    assert found.endswith(end) and found.count("-mllvm") in (0, 2 + 2 * ("wasm" in command))
    assert "plugin" not in found or "wasm" not in command


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (
            "clang -flto x.o -- y.o",
            f"x.o {UNWARNED} -Xlinker {PLUGIN[0]} -Xlinker {PLUGIN[1]} {WARNED} -- y.o",
        ),
        (
            "rustc -Clinker-plugin-lto",
            f" -Clink-arg=-Xlinker -Clink-arg={PLUGIN[0]} -Clink-arg=-Xlinker "
            f"-Clink-arg={PLUGIN[1]}",
        ),
        ("clang x.o", f"{WARNED} x.o"),
        *(  # whose cache is turned off
            (f"clang -flto=thin -Wl,{cache}dir x.o", f" -Xlinker {cache} {WARNED}")
            for cache in ("--thinlto-cache-dir=", "-plugin-opt=cache-dir=")
        ),
    ],
)
def test_flags_are_handed_on_to_the_linker_that_optimises(command, end):
    assert asking(command).endswith(end)


@pytest.mark.parametrize("passes", ["-passes=default<O2>", "--passes=inline", "-passes", "-O2"])
def test_opt_gets_an_inliner_unless_it_is_told_its_passes(passes):
    bases = {"inline": "/b"}
    assert compilers.OPT_PASSES in compilers.with_flags(["opt", "x.bc"], "opt", bases)
    assert compilers.OPT_PASSES not in compilers.with_flags(["opt", passes, "x.bc"], "opt", bases)


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        *(("clang", words, "") for words in ("-O2 x.c", "-flto=thin -fno-lto", "@/no/such/file")),
        *(("clang", words, "full") for words in ("-flto x.o", "-flto=auto")),
        ("clang", "-flto -flto=thin -flto-jobs=4", "thin"),
        ("clang", "-fno-lto @{file}", "thin"),
        ("rustc", "-C linker-plugin-lto x.rs", "thin"),
        *(("rustc", words, "") for words in ("-Clinker-plugin-lto=no", "-Clto=fat")),
        ("llc", "-flto", ""),
    ],
)
def test_links_that_optimise_are_known(kind, words, expected, tmp_path):
    (tmp_path / "file").write_text("'a b.o'\n-flto=thin")
    assert compilers.lto_of(kind, words.format(file=tmp_path / "file").split()) == expected


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("clang x.o", ""),
        ("clang -c x.c -mllvm -enable-ml-inliner=default", "says -enable-ml-inliner=default"),
        ("clang -c x.c -Xclang -mllvm -Xclang -enable-ml-inliner=default", "says -enable-ml"),
        ("clang x.o -Wl,-mllvm,-enable-ml-inliner=default", "says -Wl,-mllvm,-enable-ml"),
        ("clang @{response}", "says -enable-ml-inliner=default"),
        ("clang -c x.bc -fthinlto-index=x.thinlto.bc", "-fthinlto-index"),
        ("clang -flto=thin -fthinlto-distributor=/bin/false x.o", "distributor"),
        ("ld.lld --thinlto-distributor=/bin/false x.o", "distributor"),
        ("rustc -Cllvm-args=-enable-ml-inliner=default", "says -Cllvm"),
        ("opt --enable-ml-inliner=default x.bc", "says --enable-ml"),
    ],
)
def test_decisions_that_are_made_without_asking_have_a_reason(command, why, tmp_path):
    (tmp_path / "file").write_text("-c x.c -mllvm -enable-ml-inliner=default")
    words = command.format(response=tmp_path / "file").split()
    said = compilers.why_unasked(words[0], words, ["inline"])
    assert why in said and ("0 decisions, because" in said) == bool(why)
    assert "ml-inliner" not in compilers.why_unasked(words[0], words, ["evict"])


def test_inlining_at_a_full_link_is_said_to_be_unasked():
    assert "-flto=thin" in compilers.unasked_at_link("clang", ["-flto", "x.o"])
    for words in (["-flto", "-c", "x.c"], ["-flto=thin", "x.o"], ["x.o"]):
        assert compilers.unasked_at_link("clang", words) == ""


def test_compilers_own_choice_can_be_told_since_llvm_22():
    assert compilers.INCLUDE_DEFAULT in compilers.with_flags(
        ["clang-22"], "clang", {"inline": "/b"}, include_default=True
    )
    assert compilers.INCLUDE_DEFAULT not in compilers.with_flags(
        ["clang-22"], "clang", {"evict": "/b"}, include_default=True
    )
    assert compilers.tells_default("clang++-22") and not compilers.tells_default("rustc-19")
    assert not compilers.tells_default("/no/such/clang")
    with pytest.raises(InvalidError, match="LLVM 22"):
        compilers.with_flags(["clang-19"], "clang", {"inline": "/b"}, include_default=True)


@pytest.mark.parametrize(
    ("said", "tells"),
    [
        ("Debian clang version 22.1.8", True),
        ("  LLVM version 19.1.7", False),
        ("LLVM version: 23.0.1", True),
        ("", False),
    ],
)
def test_compiler_without_a_version_in_its_name_is_asked(said, tells, tmp_path):
    compiler = tmp_path / "clang"
    compiler.write_text(f"#!/bin/sh\necho '{said}'\n")
    compiler.chmod(0o755)
    assert compilers.tells_default(str(compiler)) == tells
    compiler.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    assert not compilers.tells_default(str(compiler))


def test_compiler_that_hangs_is_not_waited_for_long(monkeypatch):
    limits = []

    def hangs(command, timeout, **more):
        limits.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert not compilers.tells_default("clang") and limits == [10, 10]


def test_only_what_a_compiler_decides_is_asked():
    assert compilers.asked_of("clang", ["priority", "inline", "inline"]) == ["priority", "inline"]
    for kind, wanted, lacking in [
        ("llc", ["inline"], "inline"),
        ("llc", ["inline", "evict"], "inline"),
        ("opt", ["evict", "inline", "priority"], "evict, priority"),
    ]:
        with pytest.raises(InvalidError, match=f"{kind} does not decide on {lacking}, only"):
            compilers.asked_of(kind, wanted)


@pytest.mark.parametrize(
    "default", ["inline=1", "evict=32", "evict=511", "evict=0", "priority=-0.5", "priority=1e3"]
)
def test_defaults_that_may_be(default):
    compilers.check_default(*default.split("="))


@pytest.mark.parametrize(
    "default",
    [
        *("inline=-1", "inline=", "inline=1 ", "evict=-1", "evict=0.5", "evict=1e999", "x=0"),
        *("priority=nan", "priority=1e999"),
    ],
)
def test_defaults_that_may_not(default):
    with pytest.raises(InvalidError, match="expected"):
        compilers.check_default(*default.split("="))


@pytest.mark.parametrize(
    ("kind", "words", "reads"),
    [
        ("clang", "-x c - -c -o x.o", False),
        ("opt", f"{__file__} -o x.bc", False),
        ("llc", "-o x.o", True),
    ],
)
def test_compiler_that_reads_its_standard_input_unasked_is_recognised(
    kind, words, reads, monkeypatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert commands.reads_stdin(kind, words.split()) == reads


@pytest.mark.parametrize(
    ("kind", "words", "made"),
    [
        ("clang", "-c x.c", ["x.o", "a b.o", "x.su", "x.gcno"]),
        ("rustc", "x.rs", ["x"]),
        ("rustc", "x.rs --out-dir d", ["d/x"]),
        ("rustc", "x.rs -o y", ["y"]),
        ("ld.lld", "x.o", ["a.out"]),
        ("llc", "x.bc -o x.s", ["x.s"]),
    ],
)
def test_outputs_of_a_command_are_removed(kind, words, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    names = ("x.o", "a b.o", "x.su", "x.gcno", "x", "d/x", "y", "a.out", "x.s", "x.c", "old.su")
    files = [Path(name) for name in names]
    for file in files:
        file.touch()
    for earlier in files[-2:]:
        os.utime(earlier, ns=(1, 1))
    steps = """ "cc1" "-o" "x.o" "-stack-usage-file" "old.su"
 "cc1" "-o" "a b.o" "x.c" "-stack-usage-file" "x.su" "-coverage-notes-file=x.gcno\""""
    printed = {"clang": steps, "rustc": "x"}.get(kind, "")
    Path(kind).write_text(f"#!/bin/sh\necho '{printed}'\n")
    Path(kind).chmod(0o755)
    assert commands.remove_outputs(kind, [f"./{kind}", *words.split()], 1) == made
    assert [str(file) for file in files if not file.exists()] == made

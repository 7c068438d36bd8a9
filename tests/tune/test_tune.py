"""`shmbridge tune`: files of attributes with which plain compilers make smaller code."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from support.stock import needs

from shmbridge.training.scores import text_size

SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
SMALL = Path(__file__).with_name("small.c").read_text()


def tune(*words, status=0):
    done = subprocess.run([SHMBRIDGE, "tune", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def compiled(*words, file=None):
    """The bytes of .text of x.c, or of other words' output; the object's bytes."""
    flags = ["-mllvm", f"-forceattrs-csv-path={file}"] if file else []
    done = subprocess.run([*words, *flags, "-o", "plain.o"], capture_output=True, text=True)
    assert done.returncode == 0 and "CSV" not in done.stderr, done.stderr
    return text_size(Path("plain.o")), Path("plain.o").read_bytes()


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    needs("clang-22")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("x.c").write_text(SMALL)


@pytest.mark.parametrize("version", [19, 22])
def test_plain_clang_makes_smaller_code_with_the_file(version):
    command = [f"clang-{version}", "-Oz", "-c", "x.c"]
    needs(command[0])
    said = tune("-o", "out", "-j1", "--", *command)
    smaller, data = compiled(*command, file="out/x.c.csv")
    before = compiled(*command)[0]
    assert smaller < before and f"{before:g} to {smaller:g} (" in said
    assert "-mllvm -forceattrs-csv-path=out/x.c.csv" in said
    assert compiled(*command, file="out/x.c.csv")[1] == data
    first = Path("out/x.c.csv").read_bytes()
    shutil.rmtree("cache")
    tune("-o", "out", "-j3", "--", *command)
    assert Path("out/x.c.csv").read_bytes() == first


def test_the_same_command_continues():
    scores = []
    for _ in range(3):
        tune("-o", "out", "--compilations", "14", "--", "clang-22", "-Oz", "-c", "x.c")
        with next(Path("cache/shmbridge/tune").iterdir()).open("ab") as cache:
            cache.write(b"\xff\n")
        scores.append(compiled("clang-22", "-Oz", "-c", "x.c", file="out/x.c.csv")[0])
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < compiled("clang-22", "-Oz", "-c", "x.c")[0]


@pytest.mark.parametrize("link", ["", "./cc -shared {objects} -o {output}"])
def test_there_are_at_most_so_many_compilations_of_many_small_sources(link):
    Path("cc").write_text('#!/bin/sh\necho "$@" >> log; exec clang-22 "$@"')
    os.chmod("cc", 0o755)
    static = "static int g(int a) { return a * 7 + (a >> 2); }\n"
    for i in range(6):
        Path(f"{i}.c").write_text(
            static * (i > 1) + f"int f{i}(int a) {{ return {'g(a) *' * (i > 1)} a; }}"
        )
    sources = [f"{i}.c" for i in range(6)]
    words = ["--link", link, "-o", "out", "--", "./cc", "-Oz", "-fPIC", *sources]
    for at_most in 33, 60:
        tune("--compilations", at_most, *words)
        made = [line for line in Path("log").read_text().splitlines() if "-shared" not in line]
        assert len(made) <= at_most and len([*Path("out").iterdir()]) == 6
        Path("log").unlink()
    said = tune("--compilations", 17, *words, status=2)
    assert f"--compilations: expected {30 if link else 18}, found 17" in said


def test_what_the_source_decides_is_left_out():
    attribute = "__attribute__((noinline)) static int"
    Path("x.c").write_text(SMALL.replace("static int", attribute))
    said = tune("-o", "out", "--", "clang-22", "-Oz", "-c", "x.c")
    assert "," not in Path("out/x.c.csv").read_text() and "(+0.00%)" in said


def test_names_of_cpp_with_quotes_and_commas_reach_llvm_or_are_left_out():
    Path("x.cc").write_text(
        "void report(int, int, int);"
        'extern "C" {static int mix(int, int) asm("m\\"i x"); static int small(int, int)'
        ' asm("a,b");}\n'
        + SMALL.replace("void report(int, int, int);", "")
        .replace("static int twice", "template <int> inline int twice")
        .replace("twice(x)", "twice<1>(x)")
        .replace("static int mix", "int mix")
        .replace("static int small", "int small")
    )
    command = ["clang++-22", "-Oz", "-w", "-c", "x.cc"]
    tune("-o", "out", "--", *command)
    names = [line.rpartition(",")[0] for line in Path("out/x.cc.csv").read_text().splitlines()]
    assert compiled(*command, file="out/x.cc.csv")[0] <= compiled(*command)[0]
    assert "a" not in names and "a,b" not in names


def test_check_names_the_functions_that_are_gone():
    Path("out").mkdir()
    Path("out/x.c.csv").write_bytes(b"mix,noinline\nmax,noinline\n\nh\xf6t,alwaysinline\n")
    command = ["--check", "-o", "out", "--", "clang-22", "-Oz", "-c", "x.c"]
    said = tune(*command, status=1)
    assert said == "".join(f"out/x.c.csv: x.c has no function {n}\n" for n in ("h\ufffdt", "max"))
    Path("out/x.c.csv").write_text("mix,noinline\n")
    assert tune(*command) == ""


@pytest.mark.parametrize("lto", ["", "-flto=thin", "-flto"])
def test_a_relative_compiler_and_the_linked_size(lto):
    needs("ld.lld-22")
    os.symlink(shutil.which("clang-22"), "clang-22")
    Path("sub dir").mkdir()
    Path("sub dir/y.c").write_text(re.sub("first|second|third|fourth", r"\g<0>_too", SMALL))
    command = ["./clang-22", "-Oz", "-fPIC", *lto.split(), "-c"]
    link = f"./clang-22 -fuse-ld=lld {lto} -shared {{objects}} -o {{output}}"
    words = ["--compilations", 60, "--link", link, "--", *command, "x.c", "sub dir/y.c"]
    said = tune("-o", "files", *words)
    for source, made in ("x.c", "x.o"), ("sub dir/y.c", "y.o"):
        flags = ["-mllvm", f"-forceattrs-csv-path=files/{source}.csv", "-o", made]
        subprocess.run([*command, source, *flags], check=True)
    subprocess.run(link.format(objects="x.o y.o", output="program").split(), check=True)
    assert f" to {text_size(Path('program')):g} (-" in said


def test_a_command_that_prints_a_number_is_a_score():
    needs("llvm-size-22")
    words = ["--score", "llvm-size-22 {output}", "--", "clang-22", "-Oz", "-c", "x.c"]
    said = tune("-o", "out", *words)
    compiled("clang-22", "-Oz", "-c", "x.c", file="out/x.c.csv")
    size = subprocess.run(["llvm-size-22", "plain.o"], stdout=subprocess.PIPE, text=True).stdout
    assert f" to {size.split()[6]} (-" in said


def test_a_source_that_does_not_compile_is_named():
    Path("bad.c").write_text("int f( {")
    said = tune("-o", "files", "--", "clang-22", "-Oz", "-c", "x.c", "bad.c", status=1)
    assert "Error: bad.c: no baseline: exit status 1: " in said and not Path("files").exists()


def test_rustc_reads_the_file_too():
    needs("rustc")
    Path("x.rs").write_text(
        "#[inline(never)] pub fn report(a: i32) -> i32 { std::hint::black_box(a) }\n"
        "fn mix(a: i32, b: i32) -> i32 { report(a) + report(b) * report(a ^ b) + a / (b | 1) }\n"
        "pub fn one(x: i32) -> i32 { mix(x, 1) + mix(x + 1, x) + mix(x, x * x) }\n"
        "pub fn two(x: i32) -> i32 { mix(x, 3) - mix(x - 1, x) }\n"
    )
    command = ["rustc", "-Copt-level=3", "--crate-type=lib", "--emit=obj", "x.rs"]
    said = tune("-o", "out", "--compilations", 40, "--", *command)
    subprocess.run(
        [*command, "-Cllvm-args=-forceattrs-csv-path=out/x.rs.csv", "-o", "x.o"], check=True
    )
    assert f" to {text_size(Path('x.o')):g} (" in said and "-Cllvm-args=" in said

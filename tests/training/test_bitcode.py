"""Corpus.to_bitcode: the same objects as from the sources, compiled once."""

import os
import shutil
import subprocess

import pytest

from shmbridge._jobs import supervised
from shmbridge.errors import InvalidError
from shmbridge.training import Corpus, Module, Task
from shmbridge.training.scores import text_size

pytestmark = pytest.mark.skipif(not shutil.which("clang-22"), reason="no clang-22")

CLANG = "clang-22 -Oz -fPIC"
SOURCES = {
    "one.c": '#include "twice.h"\nint f(int x) { return twice(x) + twice(x + A); }\n',
    "two.c": "static int g(int x) { return x * x; }\nint h(int x) { return g(x) - g(x + 1); }\n",
    "sub/three.cpp": "#include <vector>\nint sum(const std::vector<int> &v)\n"
    "{ int s = 0; for (int x : v) s += x; return s; }\nstd::vector<int> v(int n) { return {n}; }\n",
}


@pytest.fixture
def corpus(tmp_path):
    for name, text in SOURCES.items():
        (tmp_path / "src" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "src" / name).write_text(text)
    (tmp_path / "src/twice.h").write_text("static int twice(int x) { return 2 * x; }\n")
    paths = [tmp_path / "src" / name for name in SOURCES]
    return Corpus.from_sources(*paths, flags=["-DA=3", f"-I{tmp_path}/src"])


def objects(corpus, command):
    """The code of each module."""
    codes = {}

    def keep(path):
        words = ["llvm-objdump-22", "--disassemble", path]
        said = subprocess.run(words, check=True, capture_output=True).stdout
        codes[len(codes)] = said.replace(bytes(path), b"")
        return text_size(path)

    task = Task(command, scores={"size": keep})
    outcomes = [task.run(module) for module in corpus]
    assert [outcome.stderr for outcome in outcomes] == [""] * len(corpus)
    return list(codes.values())


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.bc")}


def test_bitcode_compiles_to_the_same_code_as_the_source(corpus, tmp_path):
    bitcode = corpus.to_bitcode(tmp_path / "bc", CLANG)
    assert [module.name for module in bitcode] == [module.name for module in corpus]
    assert [*Corpus.from_description(tmp_path / "bc")] == [*bitcode]
    from_source = objects(corpus, f"{CLANG} -c {{module}} -o {{output}}")
    from_bitcode = objects(bitcode, "clang-22 {flags} {module} -o {output}")
    assert from_bitcode == from_source and all(from_source)


def test_the_inliner_asks_the_same_about_bitcode(corpus, tmp_path):
    from shmbridge.training import collect

    bitcode = corpus.to_bitcode(tmp_path / "bc", CLANG)
    asked = []
    for modules, command in (
        (corpus, f"{CLANG} -c {{module}} -o {{output}}"),
        (bitcode, "clang-22 {flags} {module} -o {output}"),
    ):
        task = Task(command, llvm="inline", scores={"size": text_size})
        found = collect(lambda batch: [0] * len(batch), task, modules, num_workers=1)
        asked.append({e.module.name: e.features["cost_estimate"].tolist() for e in found})
    assert asked[0] == asked[1] and any(asked[0].values())


def test_only_what_has_changed_is_compiled_again(corpus, tmp_path):
    folder = tmp_path / "bc"
    corpus.to_bitcode(folder, CLANG)
    first = times(folder)
    corpus.to_bitcode(folder, CLANG)
    assert times(folder) == first
    (tmp_path / "src/twice.h").write_text("static int twice(int x) { return 3 * x; }\n")
    corpus.to_bitcode(folder, CLANG)
    changed = {name for name, when in times(folder).items() if when != first[name]}
    assert changed == {"one.c.bc"}
    (folder / "two.c.cmd").unlink()  # as after a kill
    second = times(folder)
    corpus.to_bitcode(folder, CLANG)
    assert {name for name, when in times(folder).items() if when != second[name]} == {"two.c.bc"}
    corpus.to_bitcode(folder, f"{CLANG} -DB")
    assert not times(folder).items() & second.items()


def test_a_module_that_does_not_compile_is_left_out(corpus, tmp_path):
    bad = tmp_path / "bad.c"
    bad.write_text("int f(void) { return 1")
    mixed = Corpus([Module("bad.c", bad), *corpus])
    with pytest.warns(UserWarning, match=r"1 of 4 modules do not compile: bad.c: .*expected ';'"):
        bitcode = mixed.to_bitcode(tmp_path / "bc", CLANG)
    assert [*bitcode] == [*Corpus.from_description(tmp_path / "bc")] and len(bitcode) == 3
    bad.write_text("int f(void) { return 1; }")
    assert len(mixed.to_bitcode(tmp_path / "bc", CLANG)) == 4
    with pytest.raises(InvalidError, match="1 of 1 modules do not compile: x: expected a"):
        Corpus([Module("x", tmp_path / "none.c")]).to_bitcode(tmp_path / "none", CLANG)


def test_a_module_compiles_in_its_own_folder_with_odd_flags(tmp_path):
    folder = tmp_path / 'in $HOME "x"'
    folder.mkdir()
    (folder / "a b.c").write_text("#include TEXT\n")
    (folder / "b.h").write_text("int f(void) { return 1; }\n")
    module = Module("a#b", folder / "a b.c", ('-DTEXT="b.h"', "-I."), folder)
    made = set()
    for _ in range(2):
        (bitcode,) = Corpus([module]).to_bitcode(tmp_path / "bc", CLANG)
        made.add(os.stat(bitcode.path).st_mtime_ns)
    assert len(made) == 1 and bitcode.path.name == "a#b.bc"
    assert objects([bitcode], "clang-22 {flags} {module} -o {output}")


@pytest.mark.parametrize("compiler", ["gcc", "clang-22 --version", "true"])
def test_what_is_no_compilation_by_clang_is_an_error(corpus, tmp_path, compiler):
    if not shutil.which(compiler.split()[0]):
        pytest.skip(f"no {compiler}")
    with pytest.raises(InvalidError, match="expected a clang"):
        corpus.to_bitcode(tmp_path / "bc", compiler)


def test_a_compiler_whose_supervisor_is_killed_has_not_compiled(corpus, tmp_path, monkeypatch):
    killed = supervised.Report(stderr=supervised.KILLED), b""
    monkeypatch.setattr(supervised, "run", lambda *_, **options: killed)
    with pytest.raises(InvalidError, match="3 of 3 .* supervises the compiler has ended"):
        corpus.to_bitcode(tmp_path / "bc", CLANG)


def test_a_name_that_leads_out_of_the_folder_is_an_error(corpus, tmp_path):
    with pytest.raises(InvalidError, match="expected a name in this folder"):
        Corpus([Module("../x", corpus[0].path)]).to_bitcode(tmp_path / "bc", CLANG)

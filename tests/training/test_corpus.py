"""Corpora: from sources, compile commands and ml-compiler-opt's format; splits and samplers. The
last part holds what compiler_opt/rl/corpus_test.py asks of that format."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmbridge.errors import InvalidError
from shmbridge.training import Corpus, Module
from shmbridge.training._corpus import DELETED

WORDS = st.text(st.characters(blacklist_characters="\0", codec="utf-8"), min_size=1)
NAMES = st.lists(WORDS, min_size=1, unique=True)
corpora = NAMES.filter(lambda names: "#" not in "".join(names)).map(
    lambda names: Corpus(Module(name, Path("x")) for name in names)
)


# ---- Modules ----


def test_modules_are_found_by_place_name_and_slice():
    corpus = Corpus(Module(name, Path(name)) for name in "abc")
    assert corpus[0] is corpus["a"] and len(corpus) == 3
    assert [module.name for module in corpus[1:]] == ["b", "c"]
    with pytest.raises(InvalidError, match="expected a module of the corpus, found 'd'"):
        corpus["d"]


def test_a_relative_path_is_below_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Module("a", Path("x/a.c")).path == tmp_path / "x/a.c"
    assert Module("a", "x/a.c") == Module("a", tmp_path / "x/a.c")


def test_an_empty_corpus_and_two_of_a_name_are_errors():
    with pytest.raises(InvalidError, match="found none"):
        Corpus([])
    with pytest.raises(InvalidError, match="found 'a' twice"):
        Corpus([Module("a", Path("1")), Module("a", Path("2"))])


def test_sources_are_named_below_the_folder_that_they_share(tmp_path):
    for name in ("x/a.c", "x/sub/a.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    corpus = Corpus.from_sources(tmp_path / "x/a.c", tmp_path / "x/sub/a.c", flags=["-DX=1"])
    assert [module.name for module in corpus] == ["a.c", "sub/a.c"]
    assert corpus[0] == Module("a.c", tmp_path / "x/a.c", ("-DX=1",))
    with pytest.raises(InvalidError, match="expected a file"):
        Corpus.from_sources(tmp_path / "b.c")


# ---- Splits and samplers ----


@given(corpora, st.floats(0.01, 0.99), st.integers())
def test_a_split_has_every_module_once_in_its_order(corpus, part, seed):
    if len(corpus) < 2:
        with pytest.raises(InvalidError):
            corpus.split(part, seed)
        return
    train, held_out = corpus.split(part, seed)
    assert {*train} | {*held_out} == {*corpus} and not {*train} & {*held_out}
    assert len(held_out) == min(max(round(len(corpus) * part), 1), len(corpus) - 1)
    assert [*train] == [module for module in corpus if module in {*train}]
    assert [*corpus.split(part, seed)[1]] == [*held_out]


@given(corpora, st.floats(0.01, 0.99), st.integers())
def test_a_split_keeps_all_commands_of_a_source_together(corpus, part, seed):
    if len(corpus) < 2:
        return
    modules = [Module(f"{m.name}{end}", Path("x")) for m in corpus for end in ("", "#2", "#3")]
    train, held_out = Corpus(modules).split(part, seed)
    names = [{module.name.partition("#")[0] for module in side} for side in (train, held_out)]
    assert not names[0] & names[1]
    assert names[1] == {module.name for module in corpus.split(part, seed)[1]}


@pytest.mark.parametrize("part", [0, 1, -0.5, 1.5, float("nan")])
def test_a_part_must_be_between_0_and_1(part):
    with pytest.raises(InvalidError, match="between 0 and 1"):
        Corpus(Module(name, Path("x")) for name in "ab").split(part)


def test_most_modules_stay_on_their_side_when_others_join():
    modules = [Module(f"m{i}", Path("x")) for i in range(200)]
    before = {module.name for module in Corpus(modules[:100]).split(0.2)[1]}
    after = {module.name for module in Corpus(modules[:110]).split(0.2)[1]}
    assert len(before - after) <= 5


@given(corpora, st.integers(), st.integers(1, 3))
def test_a_sampler_takes_every_module_once_before_it_begins_anew(corpus, seed, epochs):
    taken = list(itertools.islice(corpus.sampler(seed), epochs * len(corpus)))
    for epoch in range(epochs):
        part = taken[epoch * len(corpus) : (epoch + 1) * len(corpus)]
        assert {*part} == {*corpus}
    assert taken == list(itertools.islice(corpus.sampler(seed), len(taken)))


def test_the_order_is_the_same_on_every_machine():
    corpus = Corpus(Module(name, Path(name)) for name in "abcde")
    assert (
        "".join(module.name for module in itertools.islice(corpus.sampler(7), 10)) == "cdeabdaecb"
    )
    assert "".join(module.name for module in corpus.split(0.4, seed=1)[1]) == "ce"


# ---- compile_commands.json ----


def commands(tmp_path, *entries, **options):
    file = tmp_path / "compile_commands.json"
    file.write_text(json.dumps(entries))
    return Corpus.from_compile_commands(file, **options)


def test_compile_commands_of_both_kinds(tmp_path):
    corpus = commands(
        tmp_path,
        {
            "directory": "/b",
            "file": "../s/a.c",
            "command": "ccache cc -Iinc '-DX=\"a b\"' -O2 -MD -MT a.o -MF a.d -o a.o -c ../s/a.c",
        },
        {"directory": "/b", "file": "/s/d/b.c", "arguments": ["cc", "-oa.o", "-c", "/s/d/b.c"]},
    )
    assert corpus[0] == Module("a.c", Path("/s/a.c"), ("-Iinc", '-DX="a b"', "-O2"), Path("/b"))
    assert corpus[1] == Module("d/b.c", Path("/s/d/b.c"), (), Path("/b"))


def test_a_source_with_two_commands_is_two_modules(tmp_path):
    one = {"directory": "/b", "file": "a.c", "command": "cc -c a.c"}
    corpus = commands(tmp_path, one, {**one, "command": "cc -DX -c a.c"})
    assert [(module.name, module.flags) for module in corpus] == [("a.c", ()), ("a.c#2", ("-DX",))]


PLAIN = WORDS.filter(lambda word: word not in ("-c", "a.c") and not word.startswith(("-o", "-M")))


@given(st.lists(PLAIN), st.booleans())
def test_flags_come_through_a_compile_command(tmp_path_factory, flags, as_text):
    words = ["cc", *flags, "-o", "a.o", "-c", "a.c"]
    said = {"command": shlex.join(words)} if as_text else {"arguments": words}
    corpus = commands(tmp_path_factory.mktemp("c"), {"directory": "/b", "file": "a.c", **said})
    assert corpus[0].flags == tuple(flags)


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", "[]", "[1]", "[{}]", '[{"directory": 1, "file": "a", "command": "cc"}]',
     '[{"directory": "/", "file": "a"}]', '[{"directory": "/", "file": "a", "command": ""}]',
     '[{"directory": "/", "file": "a", "command": "\'"}]', "null", "[" * 100_000,
     '[{"directory": "/", "file": "a", "arguments": "cc -c a"}]',
     '[{"directory": "/", "file": "a", "arguments": ["cc", 1]}]'],
)  # fmt: skip
def test_what_is_no_list_of_compile_commands_is_an_error(tmp_path, text):
    file = tmp_path / "compile_commands.json"
    file.write_text(text)
    with pytest.raises(InvalidError, match="compile_commands.json: expected"):
        Corpus.from_compile_commands(file)


# ---- ml-compiler-opt's format ----


def described(folder, commands, thinlto=False, **said):
    """A corpus of these modules and their commands."""
    (folder / "corpus_description.json").write_text(
        json.dumps({"modules": [*commands], "has_thinlto": thinlto, **said})
    )
    for name, words in commands.items():
        if words is not None:
            (folder / f"{name}.cmd").write_text("\0".join(words))
    return folder


def words_of(module):
    """What follows the compiler in a task's `{flags} {module}`, less `-x ir` and the module, which
    every one ends with."""
    assert module.flags[-2:] == ("-x", "ir") and module.path.suffix == ".bc"
    return [*module.flags[:-2]]


@pytest.mark.parametrize("wrong", [{"modules": "ab"}, {"global_command_override": "-O2"}], ids=str)
def test_a_text_in_place_of_a_list_is_no_description(tmp_path, wrong):
    described(tmp_path, {"a": ["-O2"], "b": ["-O2"]}, **wrong)
    with pytest.raises(InvalidError, match="expected a list of texts"):
        Corpus.from_description(tmp_path)


def test_a_text_in_place_of_flags_is_an_error(tmp_path):
    described(tmp_path, {"a": ["-O2"]})
    (tmp_path / "a.c").touch()
    (tmp_path / "compile_commands.json").write_text(
        '[{"directory": "/", "file": "a.c", "command": "cc -c a.c"}]'
    )
    for read in (
        lambda: Corpus.from_sources(tmp_path / "a.c", flags="-O2"),
        lambda: Corpus.from_compile_commands(tmp_path / "compile_commands.json", flags="-O2"),
        lambda: Corpus.from_description(tmp_path, flags="-O"),
    ):
        with pytest.raises(InvalidError, match="expected a list of texts"):
            read()


def test_the_flags_of_a_module_and_of_thinlto(tmp_path):
    commands = {"hi": ["-cc1", "-foo", "-bar=baz"]}
    (module,) = Corpus.from_description(described(tmp_path, commands))
    assert words_of(module) == ["-cc1", "-foo", "-bar=baz"]
    assert (module.name, module.path) == ("hi", tmp_path / "hi.bc")
    (module,) = Corpus.from_description(described(tmp_path, commands, thinlto=True))
    index = [f"-fthinlto-index={tmp_path}/hi.thinlto.bc", "-mllvm", "-thinlto-assume-merged"]
    assert words_of(module) == [*commands["hi"], *index]


BAD = ["-cc1", "-fthinlto-index=bad", "-split-dwarf-file", "/tmp/foo.dwo"]
BAD += ["-split-dwarf-output", "somepath/some.dwo"]


def test_flags_that_name_files_of_the_build_are_left_out(tmp_path):
    folder = described(tmp_path, {"hi": BAD})
    assert words_of(Corpus.from_description(folder)[0]) == ["-cc1"]


def test_an_override_is_every_modules_command(tmp_path):
    folder = described(
        tmp_path,
        {"1": ["-cc1", "-fthinlto-index=xyz"], "2": None},
        thinlto=True,
        global_command_override=["-O3", "-qrs"],
    )
    for module in Corpus.from_description(folder):
        index = f"-fthinlto-index={tmp_path}/{module.name}.thinlto.bc"
        merged = [index, "-mllvm", "-thinlto-assume-merged"]
        assert words_of(module) == ["-O3", "-qrs", *merged]


def test_an_override_that_is_not_filled_in_is_an_error(tmp_path):
    folder = described(tmp_path, {"1": ["-cc1"]}, global_command_override=["<UNSPECIFIED>"])
    with pytest.raises(InvalidError, match="not filled in"):
        Corpus.from_description(folder)


def test_a_description_without_modules_or_files_is_an_error(tmp_path):
    with pytest.raises(InvalidError, match="found none"):
        Corpus.from_description(described(tmp_path, {}))
    with pytest.raises(FileNotFoundError):
        Corpus.from_description(described(tmp_path, {"1": None}))
    with pytest.raises(FileNotFoundError):
        Corpus.from_description(tmp_path / "nowhere")


@given(st.lists(WORDS.filter(lambda word: not word.startswith(DELETED))))
def test_flags_come_through_a_cmd_file(tmp_path_factory, flags):
    folder = described(tmp_path_factory.mktemp("c"), {"m": flags})
    assert words_of(Corpus.from_description(folder)[0]) == flags


# ---- A corpus of somebody else ----


def test_flags_of_the_users_own_replace_all_that_a_corpus_says(tmp_path):
    evil = ["-fplugin=evil.so", "@evil"]
    folder = described(tmp_path, {"hi": evil}, global_command_override=evil)
    assert words_of(Corpus.from_description(folder, flags=["-cc1"])[0]) == ["-cc1"]
    assert words_of(Corpus.from_description(folder, flags=[])[0]) == []
    entry = {"directory": "/b", "file": "x.c", "arguments": ["cc", *evil, "x.c"]}
    assert commands(tmp_path, entry, flags=["-O1"])[0].flags == ("-O1",)


@pytest.mark.parametrize("name", ["../hi", "a/../../hi", "/etc/hi", "", ".", "hi\0"])
def test_a_name_that_leads_out_of_its_corpus_is_an_error(name, tmp_path):
    (tmp_path / "c").mkdir()
    folder = described(tmp_path / "c", {"hi": ["-cc1"]})
    (folder / "corpus_description.json").write_text(
        json.dumps({"modules": [name], "has_thinlto": False})
    )
    with pytest.raises(InvalidError, match="expected a name in this folder"):
        Corpus.from_description(folder)


def test_a_nul_character_in_a_command_is_an_error(tmp_path):
    entry = {"directory": "/b", "file": "x.c", "arguments": ["cc", "-DX=\0", "x.c"]}
    with pytest.raises(InvalidError, match="NUL"):
        commands(tmp_path, entry)

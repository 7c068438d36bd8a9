"""Optimisation at link time asks the policy too, whoever links; and no ThinLTO cache answers for
it. (Debian: lld-22, lld-19.)"""

import subprocess

import pytest
from support.stock import ALL, SOURCES, each_once, llvm_of_rustc, needs

pytestmark = pytest.mark.slow
FILES = ["numbers.c", "main.c"]


@pytest.fixture
def link(shmbridge_run, tmp_path):  # noqa: F811
    """link(version, linker, lto, decisions, policy, *more): how it went, of objects that nobody was
    asked for."""

    def go(version, linker, lto, decisions, policy, *more):
        needs(f"clang-{version}", f"ld.lld-{version}" if linker == "lld" else f"ld.{linker}")
        clang, objects = f"clang-{version}", [(tmp_path / name).with_suffix(".o") for name in FILES]
        for name, made in zip(FILES, objects, strict=True):
            subprocess.run([clang, "-O2", lto, "-c", SOURCES / name, "-o", made], check=True)
        out = ["-o", tmp_path / "program"]
        words = [clang, "-O2", lto, f"-fuse-ld={linker}", *objects, *out, *more]
        outcome = shmbridge_run(decisions, policy, *words)
        assert (outcome.status, outcome.defaulted) == (0, 0), outcome.stderr
        subprocess.run([tmp_path / "program"], check=True, stdout=-1)
        return outcome

    return go


@each_once
@pytest.mark.parametrize("linker", ["lld", "gold", "bfd"])
@pytest.mark.parametrize(
    ("lto", "asked"), [("-flto", ["index_to_evict", "priority"]), ("-flto=thin", None)]
)
def test_link_asks(version, linker, lto, asked, link):
    outcome = link(version, linker, lto, ALL, "advise")
    found = {decision for decision, *_ in outcome.questions}
    assert found == set(asked or ["inlining_decision", "index_to_evict", "priority"])
    assert ("does not ask about inlining when" in outcome.stderr) == (lto == "-flto")
    assert outcome.asked == outcome.questions.total()


@pytest.mark.parametrize(
    ("linker", "option", "transport"),
    [("lld", "--thinlto-cache-dir=", "preload"), ("bfd", "-plugin-opt=cache-dir=", "pipes")],
    indirect=["transport"],
)
def test_edited_policy_makes_another_program_whatever_the_link_keeps(
    linker, option, link, tmp_path
):
    made = []
    for policy in ("advise", "largest", "advise"):
        link(22, linker, "-flto=thin", "priority", policy, f"-Wl,{option}{tmp_path}/cache")
        made.append((tmp_path / "program").read_bytes())
    assert made[0] == made[2] != made[1]


def test_link_of_rustc_asks(shmbridge_run, tmp_path):  # noqa: F811
    needs("rustc", "clang-22", "ld.lld-22")
    if llvm_of_rustc() > 22:
        pytest.skip("rustc's bitcode is newer than the linker")
    link = ["-Clinker-plugin-lto", "-Clinker=clang-22", "-Clink-arg=-fuse-ld=lld"]
    outcome = shmbridge_run(
        "priority", "advise", "rustc", "-O", *link, SOURCES / "numbers.rs", "-o", tmp_path / "out"
    )
    assert (outcome.status, outcome.defaulted) == (0, 0), outcome.stderr
    assert outcome.asked == outcome.questions.total() > 0
    subprocess.run([tmp_path / "out"], check=True, stdout=-1)


def test_linker_alone_asks(shmbridge_run, tmp_path):  # noqa: F811
    needs("clang-22", "ld.lld-22")
    subprocess.run(
        ["clang-22", "-O2", "-flto", "-c", SOURCES / "numbers.c", "-o", tmp_path / "n.o"],
        check=True,
    )
    outcome = shmbridge_run(
        "priority", "advise", "ld.lld-22", "-r", tmp_path / "n.o", "-o", tmp_path / "out.o"
    )
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked > 0

"""Unmodified opt, llc, clang and rustc take a Python policy's decisions, through `shmbridge run`:
each compiler, decision and transport; and whatever fails, a right object comes of it. (Debian:
clang-22 llvm-22 clang-19 llvm-19; rustup.)
"""

import subprocess
from pathlib import Path

import pytest
from support.stock import ADVICE, ALL, MAKES, NAMES, SOURCES, compiler_of, needs

FEATURES = {"inline": 38, "evict": 21, "priority": 3}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


CASES = [
    (name, decisions)
    for name in NAMES
    for decisions in dict.fromkeys(
        [*MAKES[name.partition("-")[0]].split(","), MAKES[name.partition("-")[0]]]
    )
]


@pytest.mark.parametrize(("compiler", "decisions"), CASES)
def test_policy_changes_what_is_made(compiler, decisions, shmbridge_run, tmp_path):
    used = compiler_of(compiler, tmp_path)
    plain, out = used.plain(tmp_path / "plain.o"), tmp_path / "out.o"
    # By itself it would inline nothing of this file.
    policy = "inlines" if used.kind == "opt" else "advise"
    outcome = shmbridge_run(decisions, policy, *used.command(out))
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    wanted = decisions.split(",")
    assert {decision for decision, _, _ in outcome.questions} == {
        ADVICE[decision] for decision in wanted
    }
    assert outcome.asked == outcome.questions.total() > 0
    assert {int(count) for _, _, count in outcome.questions} == {
        FEATURES[decision] + 2 for decision in wanted
    }
    assert out.read_bytes() != plain.read_bytes()
    assert used.says(out) == used.says(plain)


@pytest.mark.parametrize("compiler", ["clang-22", "llc-19", "rustc"])
def test_names_of_functions_reach_the_policy(compiler, shmbridge_run, tmp_path):
    used = compiler_of(compiler, tmp_path)
    outcome = shmbridge_run("evict,priority", "advise", *used.command(tmp_path / "out.o"))
    for decision in ("index_to_evict", "priority"):
        names = {context for asked, context, _ in outcome.questions if asked == decision}
        assert any("pressure" in name for name in names), names


@pytest.mark.parametrize("compiler", NAMES)
def test_label_is_the_source_file(compiler, shmbridge_run, tmp_path):
    used = compiler_of(compiler, tmp_path)
    command = used.command(tmp_path / "out.o")
    decisions = MAKES[used.kind]
    outcome = shmbridge_run(decisions, "labels", *command)
    sources = [str(word) for word in command if Path(word).suffix in (".c", ".bc", ".rs")]
    assert {label for _, label, _ in outcome.questions} == set(sources)


@pytest.mark.parametrize("version", [22, 19])
def test_several_files_in_one_command(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    command = [f"clang-{version}", "-O2", "-c", SOURCES / "numbers.c", SOURCES / "more.c"]
    outcome = shmbridge_run(ALL, "advise", *command)
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked == outcome.questions.total()
    assert {"more", "numbers"} <= {context for _, context, _ in outcome.questions}
    program = [
        f"clang-{version}",
        SOURCES / "main.c",
        tmp_path / "numbers.o",
        tmp_path / "more.o",
        "-o",
        tmp_path / "both",
    ]
    subprocess.run(program, check=True)
    subprocess.run([tmp_path / "both"], check=True, stdout=subprocess.DEVNULL)


def test_rustc_with_many_codegen_units_asks(shmbridge_run, tmp_path):
    used = compiler_of("rustc", tmp_path)
    plain, out = used.plain(tmp_path / "plain"), tmp_path / "out"
    command = ["rustc", "-O", "-Ccodegen-units=16", SOURCES / "numbers.rs", "-o", out]
    # From threads, or with pipes from one after all.
    outcome = shmbridge_run(ALL, "advise", *command)
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked == outcome.questions.total() > 0
    assert used.says(out) == used.says(plain)


@pytest.mark.parametrize("version", [22, 19])
def test_file_that_needs_no_advice(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    outs = tmp_path / "plain.o", tmp_path / "out.o"
    commands = [[f"clang-{version}", "-O0", "-c", SOURCES / "more.c", "-o", out] for out in outs]
    subprocess.run(commands[0], check=True)
    outcome = shmbridge_run(ALL, "advise", *commands[1])
    assert (outcome.status, outcome.stderr, outcome.asked) == (0, "", 0)
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize("compiler", ["clang-22", "clang-19", "rustc", "llc-22", "opt-19"])
def test_compiler_that_fails_keeps_its_status_and_its_words(compiler, shmbridge_run, tmp_path):
    needs(compiler)
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int f(")
    words = ["-c", wrong] if compiler.startswith("clang") else [wrong]
    plain = subprocess.run([compiler, *words], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    outcome = shmbridge_run(MAKES[compiler.partition("-")[0]], "advise", compiler, *words)
    assert outcome.status == plain.returncode != 0
    assert outcome.stderr == plain.stderr
    assert outcome.asked == 0

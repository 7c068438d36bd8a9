"""Unmodified opt, llc, clang and rustc take a Python policy's decisions, through `shmbridge run`:
each compiler, decision and transport; and whatever fails, a right object comes of it. (Debian:
clang-22 llvm-22 clang-19 llvm-19; rustup.)
"""

import subprocess
from pathlib import Path

import pytest
from support.stock import (
    ADVICE,
    ALL,
    MAKES,
    NAMES,
    SOURCES,
    compiler_of,
    each_once,
    environment,
    needs,
    run_words,
)

FEATURES = {"inline": 38, "evict": 21, "priority": 3}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


CASES = [(name, MAKES[name.partition("-")[0]]) for name in NAMES]
# Of one decision: the others are not asked about.
CASES += [
    *(("clang-22", decision) for decision in ADVICE),
    ("llc-19", "evict"),
    ("rustc", "inline"),
]


@pytest.mark.parametrize("transport", ["preload"], indirect=True)
@pytest.mark.parametrize(("compiler", "decisions"), CASES)
def test_policy_changes_what_is_made_whatever_carries_it(
    compiler, decisions, shmbridge_run, tmp_path
):
    used, wanted = compiler_of(compiler, tmp_path), decisions.split(",")
    plain, out = used.plain(tmp_path / "plain.o"), tmp_path / "out.o"
    # By itself it would inline nothing of this file.
    policy = "inlines" if used.kind == "opt" else "advise"
    outcome = shmbridge_run(decisions, policy, *used.command(out))
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked == outcome.questions.total() > 0
    assert {(asked, int(count)) for asked, _, _, count in outcome.questions} == {
        (ADVICE[decision], FEATURES[decision] + 2) for decision in wanted
    }
    (source,) = (
        str(word) for word in used.command(out) if Path(word).suffix in (".c", ".bc", ".rs")
    )
    assert {label for _, _, label, _ in outcome.questions} == {source}
    for decision in {"evict", "priority"} & set(wanted):
        names = {context for asked, context, *_ in outcome.questions if asked == ADVICE[decision]}
        assert any("pressure" in name for name in names), names
    made = out.read_bytes()
    assert made != plain.read_bytes()
    assert used.says(out) == used.says(plain)
    assert shmbridge_run(decisions, policy, *used.command(out), options=["--pipes"]) == outcome
    assert out.read_bytes() == made


@each_once
def test_several_files_in_one_command(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    command = [f"clang-{version}", "-O2", "-c", SOURCES / "numbers.c", SOURCES / "more.c"]
    outcome = shmbridge_run(ALL, "advise", *command)
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked == outcome.questions.total()
    assert {"more", "numbers"} <= {context for _, context, *_ in outcome.questions}
    objects = [tmp_path / "numbers.o", tmp_path / "more.o", "-o", tmp_path / "both"]
    program = [f"clang-{version}", SOURCES / "main.c", *objects]
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


@each_once
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


@pytest.mark.parametrize("place", ["words", "response", "environment"])
@pytest.mark.parametrize("strict", [False, True])
def test_flag_that_turns_the_asking_off_is_said_or_strict_an_error(place, strict, tmp_path):
    needs("clang-22")
    flags, out = ["-mllvm", "-enable-ml-inliner=default"], tmp_path / "out.o"
    (tmp_path / "file").write_text(" ".join(flags))
    more = {"words": flags, "response": [f"@{tmp_path}/file"]}
    words = ["clang-22", "-O2", "-c", SOURCES / "numbers.c", "-o", out, *more.get(place, [])]
    there = environment(tmp_path)
    if place == "environment":
        there["CCC_OVERRIDE_OPTIONS"] = "# +-mllvm +-enable-ml-inliner=default"
    options = ["--connect", "onnx:///none.onnx"] + (["--strict"] if strict else [])
    done = subprocess.run(
        [*run_words("inline", None, *options), *words],
        env=there,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (done.returncode, out.exists()) == ((1, False) if strict else (0, True))
    assert done.stderr.count("\n") == 1
    assert "0 decisions, because" in done.stderr and "-enable-ml-inliner=default" in done.stderr


@pytest.mark.parametrize("transport", ["preload"], indirect=True)
@pytest.mark.parametrize("others", [[], [SOURCES / "more.c"]])
def test_label_is_the_source_whatever_file_is_read(others, shmbridge_run, tmp_path):
    needs("clang-22")
    command = ["-O2", "-save-temps", "-c", SOURCES / "numbers.c", *others]
    (tmp_path / "response").write_text(" ".join(map(str, command)))
    for words in command, [f"@{tmp_path}/response"]:
        outcome = shmbridge_run("inline,priority", "advise", "clang-22", *words)
        labels = {label for _, _, label, _ in outcome.questions}
        # Its name, where the command has several.
        assert labels == ({"numbers.c", "more.c"} if others else {str(SOURCES / "numbers.c")})

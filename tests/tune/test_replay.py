"""shmbridge run --plan: the tuned object again, also in a build; what a changed source loses."""

import shutil
import subprocess

import pytest
from support.cli import run
from support.stock import SMALL

from shmbridge._llvm.plan import read
from shmbridge.training.scores import text_size

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22"),
]


def replay(folder, *options, plan="small.plan", compiler=SMALL):
    return run("run", "--plan", plan, *options, "--", *compiler, cwd=folder)


def plain(folder):
    subprocess.run([*SMALL[:-1], "plain.o"], cwd=folder, check=True)
    return (folder / "plain.o").read_bytes()


def test_it_makes_the_tuned_object_each_time(folder):
    objects = set()
    for _ in range(2):
        done = replay(folder, "-v", "--strict")
        assert done.returncode == 0, done.stderr
        objects.add((folder / "small.o").read_bytes())
    plan = read(folder / "small.plan")
    count = len(plan.decisions)
    assert f"small.plan: made {count} of {count} changes" in done.stderr
    assert f"asked {plan.questions} times" in done.stderr
    assert len(objects) == 1 and text_size(folder / "small.o") == plan.after < plan.before


def test_it_says_nothing_when_all_fits(folder):
    done = replay(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_make_uses_the_plan_of_each_source_in_a_folder(folder):
    (folder / "plans").mkdir()
    (folder / "small.plan").rename(folder / "plans/any-name.plan")
    (folder / "other.c").write_text("int other(int x) { return x; }\n")
    (folder / "Makefile").write_text("CFLAGS = -Oz\nall: small.o other.o\n")
    launcher = f"{shutil.which('shmbridge')} run --strict --plan {folder}/plans -- clang-22"
    done = subprocess.run(
        ["make", f"CC={launcher}"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert text_size(folder / "small.o") == read(folder / "plans/any-name.plan").after
    assert (folder / "other.o").exists()


def test_a_changed_function_loses_only_its_own_decisions(folder):
    source, plan = folder / "small.c", read(folder / "small.plan")
    text = source.read_text()
    source.write_text(f"int new(int x) {{ return x * 7; }}\n{text}")
    done = replay(folder, "--strict")
    assert done.returncode == 0, done.stderr
    source.write_text(
        text.replace("int third(int x, int k) {", "int third(int x, int k) { x *= k;")
    )
    done = replay(folder)
    kept = int(done.stderr.split("made ")[1].split()[0]) if done.stderr else len(plan.decisions)
    assert done.returncode == 0 and kept >= len(plan.decisions) - 1


def test_a_plan_that_does_not_fit_is_reported_and_with_strict_an_error(folder):
    (folder / "small.c").write_text(
        "static int f(int x) { return x; }\nint g(void) { return f(1); }"
    )
    done = replay(folder)
    assert done.returncode == 0 and (folder / "small.o").read_bytes() == plain(folder)
    said = "small.plan: made 0 of"
    assert said in done.stderr and "small.c has changed since it was tuned" in done.stderr
    done = replay(folder, "--strict")
    assert done.returncode == 1 and said in done.stderr
    assert "removed small.o" in done.stderr and not (folder / "small.o").exists()


def test_other_arguments_are_the_reason_if_the_source_is_the_same(folder):
    done = replay(folder, compiler=["clang-22", "-O3", "-c", "small.c", "-o", "small.o"])
    assert done.returncode == 0 and "the arguments or the compiler differ" in done.stderr


def test_an_empty_plan_and_a_missing_one_are_the_plain_compiler(folder):
    text = (folder / "small.plan").read_text()
    (folder / "small.plan").write_text(text.partition("inline ")[0])
    done = replay(folder, "-v")
    assert done.returncode == 0 and "no plan changes this command" in done.stderr
    assert (folder / "small.o").read_bytes() == plain(folder)
    (folder / "empty").mkdir()
    assert replay(folder, "--strict", plan="empty").returncode == 0


def test_a_program_that_cannot_be_compiled_is_the_compilers_error_alone(folder):
    (folder / "small.c").write_text("int f(void) {")
    done = replay(folder)
    assert done.returncode == 1 and "expected '}'" in done.stderr and "plan" not in done.stderr


def test_a_broken_plan_and_conflicting_options_are_refused(folder):
    (folder / "small.plan").write_text("no plan")
    done = replay(folder)
    assert done.returncode == 1 and 'small.plan:1: expected "shmbridge plan 1"' in done.stderr
    done = replay(folder, "--llvm", "evict")
    assert done.returncode == 2 and "--plan makes the decisions of --llvm inline" in done.stderr
    done = replay(folder, "--connect", "x")
    assert done.returncode == 2 and "expected one policy" in done.stderr
    done = run("run", "--connect", "x", "--", *SMALL, cwd=folder)
    assert done.returncode == 2 and "Missing option '--llvm'" in done.stderr

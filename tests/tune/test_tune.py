"""shmbridge tune with stock clang: it finds what LLVM's heuristic misses, repeats itself, and can
be interrupted."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support.cli import SHMBRIDGE, refused, run

from shmbridge._llvm.plan import read
from shmbridge.training.scores import text_size

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22"),
]
SMALL = Path(__file__).with_name("small.c")


@pytest.fixture
def folder(tmp_path):
    """A folder with small.c."""
    shutil.copy(SMALL, tmp_path)
    return tmp_path


def tune(folder, *options, compiler=("clang-22", "-Oz", "-c", "small.c", "-o", "small.o")):
    """Tunes small.c with results in the folder."""
    fixed = ("--results", folder / "results", "-o", folder / "small.plan")
    return run("tune", *fixed, *options, "--", *compiler, cwd=folder)


def results(folder):
    (file,) = (folder / "results").iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def plain_size(folder):
    subprocess.run(["clang-22", "-Oz", "-c", "small.c", "-o", "plain.o"], cwd=folder, check=True)
    return text_size(folder / "plain.o")


def test_it_finds_what_the_heuristic_misses_and_writes_only_the_plan(folder):
    done = tune(folder, "-j", 2)
    assert done.returncode == 0, done.stderr
    plan = read(folder / "small.plan")
    assert plan.before == plain_size(folder) > plan.after
    assert plan.decisions and plan.source == "small.c" and plan.questions > len(plan.decisions)
    assert plan.command == "clang-22 -Oz -c small.c"
    assert f"text: {plan.before:g} to {plan.after:g}" in done.stderr.splitlines()[-2]
    assert not (folder / "small.o").exists()


def test_the_plan_depends_neither_on_jobs_nor_on_interruptions(folder, tmp_path):
    assert tune(folder, "-j", 2).returncode == 0
    whole, distinct = (folder / "small.plan").read_text(), len(results(folder))
    shutil.rmtree(folder / "results")
    for limit in 1, 7, 20, 10_000:
        done = tune(folder, "-j", 1, "--compilations", limit)
        assert done.returncode == 0, done.stderr
        assert len(results(folder)) == min(limit, distinct)
    assert (folder / "small.plan").read_text() == whole


def test_decisions_that_are_known_are_not_compiled_again(folder):
    tune(folder)
    before = results(folder)
    decided = [(asked, flipped, wanted) for _, asked, flipped, wanted, *_ in before]
    assert len({*decided}) == len(decided)
    done = tune(folder, compiler=("clang-22", "-Oz", "-c", "small.c", "-MD", "-o", "other.o"))
    assert results(folder) == before
    assert f"{len(before)} compilations, {len(before)} of them stored" in done.stderr


def test_a_changed_source_or_flag_has_results_of_its_own(folder):
    tune(folder, "--compilations", 1)
    tune(folder, "--compilations", 1, compiler=("clang-22", "-O2", "-c", "small.c"))
    (folder / "small.c").write_text(SMALL.read_text() + "int more;\n")
    tune(folder, "--compilations", 1)
    assert len(list((folder / "results").iterdir())) == 3


def test_ctrl_c_keeps_the_results_and_the_best_plan(folder):
    whole = tune(folder, "--results", folder / "whole")
    assert whole.returncode == 0
    best = (folder / "small.plan").read_text()
    command = [*SHMBRIDGE, "tune", "-j", "1", "--results", folder / "results"]
    command += ["-o", folder / "small.plan", "--", "clang-22", "-Oz", "-c", "small.c"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # the start has a score
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert "the same command continues" in said and "Traceback" not in said
    assert read(folder / "small.plan").after <= plain_size(folder)
    assert tune(folder).returncode == 0
    assert (folder / "small.plan").read_text().splitlines()[-3:] == best.splitlines()[-3:]


def test_a_search_that_finds_nothing_writes_an_empty_plan(folder):
    (folder / "small.c").write_text("int f(int x) { return x; }\n")
    done = tune(folder)
    plan = read(folder / "small.plan")
    assert done.returncode == 0 and plan.before == plan.after and not plan.decisions


def test_a_command_may_be_the_score(folder):
    done = tune(folder, "--score", "wc -c {output}", "--compilations", 5)
    assert done.returncode == 0, done.stderr
    plain_size(folder)
    assert read(folder / "small.plan").before == os.path.getsize(folder / "plain.o")


def test_a_score_that_changes_is_an_error(folder):
    counter = folder / "counter.sh"
    counter.write_text(f'echo x >> "{folder}/n"; wc -l < "{folder}/n"; : "$1"\n')
    counting = f"sh -c 'echo $((1000000 - $(sh {counter})))' {{output}}"
    done = tune(folder, "--score", counting, "--compilations", 3)
    assert done.returncode == 1 and "is not deterministic" in done.stderr


def test_it_refuses_what_it_cannot_search(folder):
    options = ("tune", "-o", folder / "x.plan", "--results", folder / "r")
    said = refused(1, *options, "--", "clang-19", "-c", "small.c", cwd=folder)
    assert "expected clang of LLVM 22" in said
    said = refused(1, *options, "--", "clang-22", "--version", cwd=folder)
    assert "clang-22 --version: expected source files, found none" in said
    said = refused(1, *options, "--score", "speed", "--", "clang-22", "-c", "small.c", cwd=folder)
    assert "'speed': expected text, object, or a command" in said
    (folder / "bad.c").write_text("int f(void) {")
    said = refused(1, *options, "--", "clang-22", "-c", "bad.c", cwd=folder)
    assert "bad.c" in said and "expected '}'" in said


def test_a_second_search_of_the_same_command_is_refused(folder):
    tune(folder, "--compilations", 1)
    (file,) = (folder / "results").iterdir()
    with file.open() as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        done = tune(folder)
    assert done.returncode == 1 and "another search of this command is running" in done.stderr


def test_a_torn_result_is_dropped_and_a_wrong_one_reported(folder):
    tune(folder, "--compilations", 5)
    (file,) = (folder / "results").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole + b'[[["12')
    assert tune(folder, "--compilations", 5).returncode == 0
    assert file.read_bytes() == whole
    file.write_bytes(b"{}\n" + whole)
    done = tune(folder)
    assert done.returncode == 1 and f"{file}:1: expected a result" in " ".join(done.stderr.split())

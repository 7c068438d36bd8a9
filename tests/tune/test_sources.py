"""shmbridge tune with several sources: a plan for each, from one budget."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.cli import refused, run

from shmbridge._llvm.plan import read
from shmbridge.training.scores import text_size

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("clang-22"), reason="needs clang-22"),
]
SMALL = Path(__file__).with_name("small.c").read_text()
OTHER = re.sub("first|second|third|fourth", r"\g<0>_too", SMALL).replace("x / 7", "x / 9")
LINK = "clang-22 -shared -nostdlib {objects} -o {output}"


@pytest.fixture
def folder(tmp_path):
    """A folder with lib/small.c and other.c."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "small.c").write_text(SMALL)
    (tmp_path / "other.c").write_text(OTHER)
    return tmp_path


def tune(folder, *options, compiler=("clang-22", "-Oz", "-c", "lib/small.c", "other.c")):
    fixed = ("--results", folder / "results", "-o", "plans")
    return run("tune", *fixed, *options, "--", *compiler, cwd=folder)


def plan_of(folder, source):
    return (folder / "plans" / f"{source}.plan").read_text()


def test_each_source_gets_the_plan_that_it_gets_alone(folder):
    assert tune(folder).returncode == 0
    together = [plan_of(folder, source) for source in ("lib/small.c", "other.c")]
    assert all(read(path).decisions for path in (folder / "plans").rglob("*.plan"))
    shutil.rmtree(folder / "plans")
    shutil.rmtree(folder / "results")
    for source in "lib/small.c", "other.c":
        assert tune(folder, compiler=("clang-22", "-Oz", "-c", source)).returncode == 0
    assert [plan_of(folder, source) for source in ("lib/small.c", "other.c")] == together


def test_the_last_line_sums_the_scores_of_all_sources(folder):
    done = tune(folder)
    plans = [read(path) for path in (folder / "plans").rglob("*.plan")]
    before, after = (sum(getattr(plan, name) for plan in plans) for name in ("before", "after"))
    assert done.stderr.splitlines()[-1].startswith(f"{before:g} to {after:g} (")


def test_a_budget_serves_all_sources_alike(folder):
    done = tune(folder, "--compilations", 12)
    assert done.returncode == 0 and "the same command continues" in done.stderr
    counts = [len(file.read_text().splitlines()) for file in (folder / "results").iterdir()]
    assert counts == [6, 6]


def test_a_compile_commands_json_gives_sources_flags_and_folders(folder):
    (folder / "build").mkdir()
    entries = [
        {
            "directory": str(folder / "build"),
            "file": "../other.c",
            "command": "cc -O1 -c ../other.c",
        },
        {
            "directory": str(folder),
            "file": "lib/small.c",
            "arguments": ["cc", "-DX", "lib/small.c"],
        },
    ]
    (folder / "build" / "compile_commands.json").write_text(json.dumps(entries))
    done = tune(
        folder, "--commands", "build/compile_commands.json", compiler=("clang-22", "-Oz", "-g0")
    )
    assert done.returncode == 0, done.stderr
    found = {plan.source: plan.command for plan in map(read, (folder / "plans").rglob("*.plan"))}
    assert found == {
        "other.c": "clang-22 -O1 -Oz -g0 -c other.c",
        "lib/small.c": "clang-22 -DX -Oz -g0 -c lib/small.c",
    }


def test_sources_of_one_name_in_two_folders_have_a_plan_each(folder):
    (folder / "app").mkdir()
    (folder / "other.c").rename(folder / "app" / "small.c")
    entries = [
        {"directory": str(folder / name), "file": "small.c", "command": "cc -c small.c"}
        for name in ("lib", "app")
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    commands = "--commands", "compile_commands.json"
    done = tune(folder, "--compilations", 2, *commands, compiler=("clang-22", "-Oz"))
    assert done.returncode == 0, done.stderr
    found = {read(path).source for path in (folder / "plans").rglob("*.plan")}
    assert found == {"lib/small.c", "app/small.c"}


def test_sources_that_do_not_compile_are_reported_and_the_others_tuned(folder):
    (folder / "other.c").write_text("int f(void) {")
    done = tune(folder)
    assert done.returncode == 1
    assert "other.c: not tuned: " in done.stderr and "expected '}'" in done.stderr
    assert [path.name for path in (folder / "plans").rglob("*.plan")] == ["small.c.plan"]


def test_the_score_may_be_of_the_linked_program(folder):
    command = ("clang-22", "-Oz", "-fPIC", "-c", "lib/small.c", "other.c")
    done = tune(folder, "--link", LINK, compiler=command)
    assert done.returncode == 0, done.stderr
    sizes = []
    for launcher in [], ["shmbridge", "run", "--strict", "--plan", "plans", "--"]:
        objects = []
        for source in command[-2:]:
            objects.append(source.replace("/", "-") + ".o")
            words = [*launcher, *command[:-2], source, "-o", objects[-1]]
            subprocess.run(words, cwd=folder, check=True)
        linked = LINK.format(objects=" ".join(objects), output="program").split()
        subprocess.run(linked, cwd=folder, check=True)
        sizes.append(text_size(folder / "program"))
    assert sizes[0] > sizes[1]
    assert done.stderr.splitlines()[-1].startswith(f"{sizes[0]:g} to {sizes[1]:g} (")
    again = tune(folder, "--link", LINK, compiler=command).stderr.splitlines()[-1]
    count = int(again.split("with ")[1].split()[0])
    assert f"{count} compilations, {count} of them stored" in again


def test_a_link_that_fails_or_names_no_objects_is_reported(folder):
    done = tune(folder, "--link", "clang-22 -o {output}")
    assert done.returncode == 1 and "expected a command with {objects} and {output}" in done.stderr
    done = tune(folder, "--link", "false {objects} {output}", "--compilations", 4)
    assert done.returncode == 1 and "false " in done.stderr and "not tuned" in done.stderr


def test_one_file_cannot_hold_the_plans_of_two_sources(folder):
    said = refused(
        2, "tune", "-o", "x.plan", "--", "clang-22", "lib/small.c", "other.c", cwd=folder
    )
    assert "-o x.plan: expected a folder for 2 sources" in said
    said = refused(1, "tune", "-o", "x", "--", "clang-22", "lib/none.c", cwd=folder)
    assert "expected source files, found" in said and "none.c" in said

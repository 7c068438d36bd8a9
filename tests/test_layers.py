"""The package's modules are layers: imports point down, and never in a circle."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "shmbridge"
# Folders and single files, from the bottom up; "shmbridge" is the package's own names.
# Imports inside functions and for type checkers count as others do.
ROOMS = [
    *("_native", "_fastpath", "_generated", "_config", "errors", "_urls", "_values", "_bridge"),
    *("_llvm", "_jobs", "logs", "serdes", "_grpc", "runners", "_host", "_runner", "rl"),
    *("shmbridge", "hosts", "_compile", "training", "_tune", "_episodes", "envs", "_embedding"),
    *("demo", "cli"),
]
# Rooms that are programs over the others: they import what the reference lists, as a user would.
PROGRAMS = ["training", "_tune", "envs", "_compile", "cli"]
# What else they import, and why no user does.
INTERNAL = {
    "training": {
        "_jobs.supervised": "compilers under limits, which scores and compile run, too",
        "_llvm": "the flags that make an unmodified compiler ask",
        "_runner.urls.with_options": "options in a URL's text",
        "_host.batch.rows_of": "advice by row, as a batch replies with it",
        "_compile": "the one comparison of a model with what was made of it",
    },
    "_tune": {},
    "envs": {"_episodes": "the arrays of all compilers, which C fills"},
    "_compile": {
        "_config": "what `shmbridge config` prints",
        "_jobs.supervised": "as training",
        "_native.lib": "the numbers of dtypes",
    },
    "cli": {
        "_bridge": "what ls, inspect, gc and stop look at",
        "_compile": "the command's own",
        "_config": "the command's own",
        "_embedding": "the command's own",
        "_tune": "the command's own",
        "demo": "the command's own",
        "_host": "a service that counts, records and shares its name",
        "_jobs.supervisor": "what gc removes, and how a worker ends with its parent",
        "_llvm": "the flags that make an unmodified compiler ask",
        "_native": "numbers of the C core",
        "_runner": "a model that C asks without Python",
        "_urls": "options in a URL's text",
        "hosts._relay": "what relay and record run",
        "runners.python.load": "MODULE:FUNCTION, as python:// has it",
    },
}
TEXT = {"ending", "error_text", "printable", "raise_status", "undone_by", "write_whole"}
TEXT = {f"errors.{name}" for name in TEXT}
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
}


def short(module):
    """A module's name below shmbridge; "shmbridge" for itself."""
    return module.removeprefix("shmbridge.")


def named(statement):
    """The package's modules that an import statement names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names if alias.name.split(".")[0] == "shmbridge"]
    if (
        not isinstance(statement, ast.ImportFrom)
        or (statement.module or "").split(".")[0] != "shmbridge"
    ):
        return []
    inner = {f"{statement.module}.{alias.name}" for alias in statement.names}
    modules = {name for name in inner if name in MODULES or name == "shmbridge._native"}
    return [*modules, *([statement.module] if modules != inner else [])]


def imports(file):
    return {short(name) for node in ast.walk(ast.parse(file.read_text())) for name in named(node)}


def package():
    return {short(module): imports(file) for module, file in MODULES.items()}


def upward_imports(layers, graph):
    floor = {name: number for number, name in enumerate(layers)}
    return [
        f"{module} -> {name}"
        for module, names in graph.items()
        for name in sorted(names)
        if floor[name.split(".")[0]] > floor[module.split(".")[0]]
    ]


def test_every_module_is_in_a_room():
    assert {module.split(".")[0] for module in package()} == set(ROOMS) - {"_native"}


def test_what_is_public_is_in_the_reference():
    page = (ROOT / "docs" / "reference-python.md").read_text()
    shown = set(re.findall(r"^\.\. auto\w+:: shmbridge\.([a-z]+)\b", page, re.MULTILINE))
    public = {room for room in ROOMS if not room.startswith("_")} - {"shmbridge", "demo", "cli"}
    assert public == shown - {"connect"}


def imported(file):
    """Every name that a file imports from the package, in full: "training.scores.Score"."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "shmbridge":
            yield from (short(f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (short(a.name) for a in node.names if a.name.startswith("shmbridge."))


def is_public(name):
    """Is it in the reference, by itself or in a module that is shown whole?"""
    page = (ROOT / "docs" / "reference-python.md").read_text()
    shown = set(re.findall(r"^\.\. auto\w+:: shmbridge\.(\S+)", page, re.MULTILINE))
    room, _, own = name.rpartition(".")
    return name in shown | TEXT or (room in shown and not own.startswith("_"))


def beyond_the_reference(room):
    """What a room's files import that is neither public nor its own."""
    found = set()
    for module, file in MODULES.items():
        if short(module).split(".")[0] == room:
            names = set(imported(file))
            found |= {name for name in names if name.split(".")[0] != room and not is_public(name)}
    return found


@pytest.mark.parametrize("room", PROGRAMS)
def test_programs_import_what_the_reference_lists(room):
    found = beyond_the_reference(room)
    used = {
        each: [name for name in found if f"{name}.".startswith(f"{each}.")]
        for each in INTERNAL[room]
    }
    assert found - {name for names in used.values() for name in names} == set()
    assert [each for each, names in used.items() if not names] == []


def test_no_module_has_more_than_350_lines():
    lines = {short(name): len(file.read_text().splitlines()) for name, file in MODULES.items()}
    assert [name for name, count in lines.items() if count > 350] == []


def test_no_import_points_up():
    assert upward_imports(ROOMS, package()) == []


def test_no_imports_form_a_circle():
    list(TopologicalSorter(package()).static_order())


def test_no_import_is_relative():
    trees = [ast.walk(ast.parse(file.read_text())) for file in MODULES.values()]
    assert not [
        node for tree in trees for node in tree if isinstance(node, ast.ImportFrom) and node.level
    ]


def test_no_command_imports_another():
    from shmbridge.cli import MODULES as COMMANDS

    commands = {f"cli.{module}" for module in COMMANDS.values()}
    assert {
        module: names & commands for module, names in package().items() if names & commands
    } == {}

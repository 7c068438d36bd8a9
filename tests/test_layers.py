"""The package's modules are layers: imports point down, and never in a circle."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "shmbridge"
# Folders and single files, from the bottom up; "shmbridge" is the package's own names.
# Imports inside functions and for type checkers count as others do.
ROOMS = [
    "_native",
    "_fastpath",
    "_generated",
    "_config",
    "errors",
    "_urls",
    "_values",
    "_bridge",
    "_llvm",
    "_jobs",
    "logs",
    "serdes",
    "_grpc",
    "runners",
    "_host",
    "_runner",
    "rl",
    "training",
    "_tune",
    "shmbridge",
    "hosts",
    "envs",
    "_compile",
    "_embedding",
    "demo",
    "cli",
]
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
    modules = {
        name
        for name in inner
        if name in MODULES or name in ("shmbridge._native", "shmbridge._fastpath")
    }
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
    assert {module.split(".")[0] for module in package()} == set(ROOMS) - {"_native", "_fastpath"}


def test_what_is_public_is_in_the_reference():
    page = (ROOT / "docs" / "reference-python.md").read_text()
    shown = set(re.findall(r"^\.\. auto\w+:: shmbridge\.([a-z]+)\b", page, re.MULTILINE))
    public = {room for room in ROOMS if not room.startswith("_")} - {"shmbridge", "demo", "cli"}
    assert public == shown - {"connect"}


def test_no_import_points_up():
    assert upward_imports(ROOMS, package()) == []


def test_no_imports_form_a_circle():
    list(TopologicalSorter(package()).static_order())


def test_no_imports_between_benchmarks_form_a_circle():
    files = {file.stem: file for file in (ROOT / "bench").rglob("*.py")}
    graph = {
        name: {
            alias.name if isinstance(node, ast.Import) else node.module
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        & files.keys()
        for name, file in files.items()
    }
    assert "results_page" in graph["program"]
    list(TopologicalSorter(graph).static_order())


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


def test_imports_that_point_up_or_form_a_circle_are_found(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(
        "def f():\n    from shmbridge import cli\n    from shmbridge._native import lib\n    "
        "import shmbridge.hosts\n"
    )
    graph = {"serdes": imports(file)}
    assert graph == {"serdes": {"cli", "_native", "hosts"}}
    assert upward_imports(ROOMS, graph) == ["serdes -> cli", "serdes -> hosts"]
    with pytest.raises(CycleError):
        list(TopologicalSorter({"cli": {"hosts"}, "hosts": {"cli"}}).static_order())

"""The C core's folders are layers: includes and calls point down, and never in a circle."""

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import shmbridge

CORE = Path(__file__).parents[1] / "cdef" / "src"
ARCHIVE = Path(shmbridge.__file__).parent / "lib" / "libshmbridge.a"
# From the bottom up; docs/design.md says what each is for.
LAYERS = [
    *("base", "process", "message", "segment", "host", "text", "serdes", "runner", "llvm", "pipe"),
    *("model", "command", "environment"),
]


def includes():
    """The core's own headers that each file includes; everything may use the public headers."""
    return {
        str(file.relative_to(CORE)): [
            name
            for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE)
            if not name.startswith("shmbridge")
        ]
        for file in CORE.rglob("*.[ch]")
    }


def calls():
    """The files whose functions each file calls. A pointer to a function's table is no call."""
    command = ["nm", "--format=posix", "--print-file-name", ARCHIVE]
    symbols = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return called({file.name: str(file.relative_to(CORE)) for file in CORE.rglob("*.c")}, symbols)


def called(paths, symbols):
    found = re.findall(r"\[(\S+)\.o\]: (\S+) (\w)", symbols)
    defined = {name: paths[file] for file, name, type in found if type == "T"}
    graph = {path: set() for path in paths.values()}
    for file, name, type in found:
        if type == "U" and name in defined:
            graph[paths[file]].add(defined[name])
    return graph


def extension():
    """The files of the extension whose functions each one names."""
    texts = {
        file.name: re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
        for file in (CORE.parent / "extension").glob("*.c")
    }
    definition = re.compile(r"^(?!static)\w[\w *]*\b(\w+)\([^;{]*\) \{", re.MULTILINE)
    owner = {name: file for file, text in texts.items() for name in definition.findall(text)}
    return {
        file: {owner[name] for name in re.findall(r"\w+", text) if name in owner} - {file}
        for file, text in texts.items()
    }


def upward(layers, graph):
    """The includes or calls that point to a layer above their own."""
    floor = {name: number for number, name in enumerate(layers)}
    return [
        f"{file} -> {name}"
        for file, names in graph.items()
        for name in names
        if floor[name.split("/")[0]] > floor[file.split("/")[0]]
    ]


def test_every_file_is_in_a_layer_and_no_two_share_a_name():
    assert {file.split("/")[0] for file in includes()} == set(LAYERS)
    names = [file.name for file in CORE.rglob("*.c")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("graph", [includes, calls])
def test_none_points_up_or_forms_a_circle(graph):
    assert upward(LAYERS, graph()) == []
    list(TopologicalSorter(graph()).static_order())


def test_the_extensions_files_form_no_circle():
    assert "ask.c" in extension()["fastpath.c"]
    list(TopologicalSorter(extension()).static_order())

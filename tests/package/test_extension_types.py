"""What Python takes from the extensions is there; mypy sees into neither of them."""

import ast
from pathlib import Path

from shmbridge import _fastpath
from shmbridge._native import lib

PACKAGE = Path(__file__).parents[2] / "shmbridge"


def test_every_name_of_the_core_that_python_uses_is_in_the_extension():
    used = {
        node.attr
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "lib"
    }
    assert len(used) > 100
    assert used <= set(dir(lib))


def test_the_types_of_the_fast_path_name_what_the_extension_has():
    found = {name for name in dir(_fastpath) if not name.startswith("_")}
    body = ast.parse((PACKAGE / "_fastpath.pyi").read_text()).body
    named = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    named |= {ast.unparse(each.target) for each in body if isinstance(each, ast.AnnAssign)}
    assert {name for name in named if name[0] != "_"} == found

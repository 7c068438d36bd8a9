"""The types of the extensions, for mypy, are those that the extensions have."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from shmbridge import _fastpath
from shmbridge._native import ffi, lib

ROOT = Path(__file__).parents[2]
NATIVE, HOT = (ROOT / f"shmbridge/{name}.pyi" for name in ("_native", "_fastpath"))


def declared(body: list[ast.stmt]) -> dict[str, ast.AnnAssign | ast.FunctionDef | ast.ClassDef]:
    named = {each.name: each for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return named | {
        ast.unparse(each.target): each for each in body if isinstance(each, ast.AnnAssign)
    }


def test_the_types_of_native_are_made_from_the_headers(tmp_path: Path) -> None:
    made = tmp_path / "_native.pyi"
    subprocess.run([sys.executable, ROOT / "cdef/extension/build_types.py", made], check=True)
    assert made.read_text() == NATIVE.read_text(), f"{NATIVE} is stale: its first line says how"


def test_the_types_of_native_name_what_the_extension_has() -> None:
    members = declared(declared(ast.parse(NATIVE.read_text()).body)["Lib"].body)
    assert members.keys() == set(dir(lib))
    for name, member in members.items():
        if isinstance(member, ast.FunctionDef):
            expected = len(ffi.typeof(getattr(lib, name)).args) + len(["self"])
            assert len(member.args.posonlyargs) == expected, name


def test_the_types_of_hot_name_what_the_extension_has() -> None:
    found = {name for name in dir(_fastpath) if not name.startswith("_")}
    assert {name for name in declared(ast.parse(HOT.read_text()).body) if name[0] != "_"} == found

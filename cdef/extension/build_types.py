"""Generates the cffi extension's types, of the same headers:

python cdef/extension/build_types.py shmbridge/_native.pyi
"""

import re
import sys
from keyword import iskeyword
from pathlib import Path
from typing import Any

from build_ffi import CALLBACKS, declarations, headers
from pycparser import c_ast, c_parser

BUILTIN = ["bool", "size_t", "uintptr_t"]
BUILTIN += [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
PYTHON = {"bool": "bool", "void": "None", "float": "float", "double": "float"}
START = '''\
# The types of what cffi makes of the headers. Made by:
# python cdef/extension/build_types.py shmbridge/_native.pyi
from typing import Any, final

@final
class CData:
    """A C pointer, array or struct. cffi knows what is in it, mypy does not."""

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __add__(self, count: int) -> CData: ...
    def __len__(self) -> int: ...

ffi: Any

@final
class Lib:
'''


class Members(c_ast.NodeVisitor):  # type: ignore[misc]
    """The functions, variables and constants of C declarations, as members of a Python class."""

    def __init__(self) -> None:
        self.integers = {"int", "char", "long", *BUILTIN[1:]}
        self.lines: list[str] = []

    def python(self, node: Any, string: str) -> str:
        """The Python type of a C type; `string` stands for a pointer to bytes."""
        if isinstance(node, c_ast.PtrDecl | c_ast.ArrayDecl):
            (name,) = getattr(node.type.type, "names", ["struct"])
            return string if name in ("char", "uint8_t", "void") else "CData"
        (name,) = getattr(node.type, "names", ["struct"])
        return "int" if name in self.integers else PYTHON.get(name, "CData")

    def visit_Typedef(self, node: Any) -> None:
        if isinstance(node.type.type, c_ast.Enum):
            self.integers.add(node.name)
        self.generic_visit(node)

    def visit_Enumerator(self, node: Any) -> None:
        self.lines.append(f"{node.name}: int")

    def visit_Struct(self, node: Any) -> None:
        """Fields are no members."""

    def visit_Decl(self, node: Any) -> None:
        if not isinstance(node.type, c_ast.FuncDecl):
            if node.name:
                self.lines.append(f"{node.name}: {self.python(node.type, 'CData')}")
            self.generic_visit(node)
            return
        params = [each for each in node.type.args.params if each.name]
        names = [f"{each.name}_" if iskeyword(each.name) else each.name for each in params]
        types = [self.python(each.type, "CData | bytes") for each in params]
        args = [f"{name}: {type}" for name, type in zip(names, types, strict=True)]
        result = self.python(node.type.type, "CData")
        listed = ", ".join(["self", *args, "/"])
        self.lines.append(f"def {node.name}({listed}) -> {result}: ...")


def build(output: str) -> None:
    """Writes the types of shmbridge._native to the file `output`."""
    typedefs = "".join(f"typedef int {name};" for name in BUILTIN)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", "".join(map(declarations, headers())), flags=re.DOTALL)
    members = Members()
    members.visit(c_parser.CParser().parse(typedefs + text))
    callbacks = [f"{name}: Any" for name in re.findall(r"(shmb_python_\w+)\(", CALLBACKS)]
    lines = "".join(f"    {line}\n" for line in members.lines + callbacks)
    Path(output).write_text(f"{START}{lines}\nlib: Lib\n")


if __name__ == "__main__":
    build(sys.argv[1])

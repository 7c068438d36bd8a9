"""How much there is to carry: lines and statements by folder, and what they may be at most.

python tests/budget.py          prints the table; status 1 if a total is above tests/budget.json
python tests/budget.py --store  stores the totals of now

A commit may lower a total. One that raises a total says in CHANGELOG what users get for it.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".json")
PRODUCT = {"cdef", "shmbridge"}
OTHERS = {"tests", "bench", "examples"}
C_ENDINGS = {".c", ".h", ".hpp", ".cpp"}
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.DOTALL)


def statements(path, text):
    """In Python those of its grammar; in C the semicolons, of which the head of a `for` has two."""
    if path.suffix == ".py":
        return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
    code = NOT_CODE.sub("", text)
    return code.count(";") - 2 * len(re.findall(r"\bfor \([^;()]*(?:\([^;]*)?;", code))


def measure():
    """Lines and statements by folder, and the totals that the budget limits."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines, held, totals = Counter(), Counter(), Counter()
    for name in listed.stdout.splitlines():
        path = ROOT / name
        top = name.partition("/")[0]
        place = "product" if top in PRODUCT else top
        if path.suffix == ".md" and path.is_file() and path != ROOT / "CHANGELOG.md":
            totals["words of pages"] += len(path.read_text(encoding="utf-8").split())
        elif top in PRODUCT | OTHERS and path.suffix in {".py", *C_ENDINGS} and path.is_file():
            text = path.read_text(encoding="utf-8")
            depth = 3 if name.startswith("cdef/src/") else 2
            folder = "/".join(name.split("/")[:-1][:depth])
            counted = text.count("\n"), statements(path, text)
            lines[folder] += counted[0]
            held[folder] += counted[1]
            totals[f"lines of {place}"] += counted[0]
            totals[f"statements of {place}"] += counted[1]
    return lines, held, dict(sorted(totals.items()))


def main():
    lines, held, totals = measure()
    for folder in sorted(lines):
        print(f"{lines[folder]:7} lines {held[folder]:7} statements  {folder}")
    if "--store" in sys.argv[1:]:
        STORED.write_text(json.dumps(totals, indent=1) + "\n", encoding="utf-8")
    allowed = json.loads(STORED.read_text(encoding="utf-8"))
    over = {name: n for name, n in totals.items() if n > allowed[name]}
    for name, n in totals.items():
        print(f"{n:7} {name}, at most {allowed[name]}")
    for name, n in over.items():
        print(
            f"budget: expected at most {allowed[name]} {name}, found {n}: make something shorter, "
            "or say in CHANGELOG what users get and run tests/budget.py --store"
        )
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())

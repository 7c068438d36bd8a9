"""The operators of tests/mutate.py, on a few lines."""

import ast

import mutate

C = """\
#define MOST 5
int f(int n) { /* if (n) */
    if (!g(n) && n < 3) return n;
    say("n < 3");
    return 0;
}
"""
PYTHON = '''\
def f(n):
    """If n < 3."""
    if n < 3 and g(n):
        return n
    say("n < 3")
'''


def changes(text: str, suffix: str) -> list[str]:
    """The lines that differ, without their indents."""
    lines = text.split("\n")
    return [
        new.strip()
        for mutant in mutate.mutants(text, suffix)
        for old, new in zip(lines, mutant.split("\n"), strict=True)
        if old != new
    ]


def test_c_is_changed_in_code_alone():
    assert sorted(changes(C, ".c")) == sorted(
        [
            "if (!g(n) && n <= 3) return n;",
            "if (!g(n) && n >= 3) return n;",
            "if (!g(n) && n < (3 - 1)) return n;",
            "if (!g(n) && n < (3 + 1)) return n;",
            "if (!g(n) || n < 3) return n;",
            "if (!(!g(n) && n < 3)) return n;",
            "if (0) return n;",
            "if (g(n) && n < 3) return n;",
            "if (!g(n) && n < 3) return 0;",
            "return 1;",
            "return 1;",
            ";",
        ]
    )


def test_python_is_changed_in_code_alone_and_stays_python():
    assert sorted(changes(PYTHON, ".py")) == sorted(
        [
            "if n <= 3 and g(n):",
            "if n >= 3 and g(n):",
            "if n < (3 - 1) and g(n):",
            "if n < (3 + 1) and g(n):",
            "if n < 3 or g(n):",
            "if not (n < 3 and g(n)):",
            "return None",
            "pass",
        ]
    )
    for mutant in mutate.mutants(PYTHON, ".py"):
        ast.parse(mutant)

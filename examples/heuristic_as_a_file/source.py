"""Changes the text of a policy, for a program that searches for heuristics.

A policy is one expression of Python, such as `(cost_estimate < 35) & (callee_users - 3 *
nr_ctant_params < 2)`.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Mapping
from typing import Any

FEATURES = [
    "callee_basic_block_count",
    "callee_conditionally_executed_blocks",
    "callee_users",
    "caller_basic_block_count",
    "caller_conditionally_executed_blocks",
    "caller_users",
    "callsite_height",
    "call_argument_setup",
    "callsite_cost",
    "constant_args",
    "cost_estimate",
    "edge_count",
    "is_multiple_blocks",
    "last_call_to_static_bonus",
    "nested_inlines",
    "node_count",
    "nr_ctant_params",
    "num_loops",
    "simplified_instructions",
    "sroa_savings",
    "threshold",
    "unsimplified_common_instructions",
]
LENGTH = 160  # of a policy, to stay readable

FILE = '''"""Inline a call? {note}"""


def advise(request):
{names}
    return ({policy}).astype(int)
'''


def file_of(policy: str, note: str) -> str:
    """The text of a policy as a file for `shmbridge run --host FILE:advise`."""
    used = sorted({node.id for node in ast.walk(ast.parse(policy)) if isinstance(node, ast.Name)})
    names = "\n".join(f'    {name} = request["{name}"]' for name in used)
    return FILE.format(note=note, names=names, policy=policy)


def load(text: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function `advise` of such a file."""
    module: dict[str, Any] = {}
    exec(compile(text, "policy.py", "exec"), module)
    return module["advise"]


def fresh(rng: random.Random) -> str:
    """A random policy: one to three comparisons of features."""
    text = _comparison(rng)
    for _ in range(rng.randrange(3)):
        text = f"({text}) {rng.choice('&|')} ({_comparison(rng)})"
    return _tidy(text)


def changed(text: str, other: str, rng: random.Random) -> str:
    """A small change of `text`, which may take a part of `other`."""
    way = rng.randrange(5)
    if way == 0:
        return _tidy(f"({text}) {rng.choice('&|')} ({_comparison(rng)})")
    tree = ast.parse(text, mode="eval")
    kind = {1: ast.Constant, 2: ast.Name, 3: ast.Compare, 4: (ast.BinOp, ast.Compare)}[way]
    places = [node for node in ast.walk(tree) if isinstance(node, kind)]
    if not places:
        return fresh(rng)
    place = rng.choice(places)
    if isinstance(place, ast.Constant):
        new = str(round(place.value * rng.choice([0.5, 0.8, 1.25, 2])) + rng.choice([-1, 0, 1]))
    elif isinstance(place, ast.Name):
        new = rng.choice(FEATURES)
    elif way == 3:
        new = _comparison(rng)
    else:  # a part of the other text, of the same type
        donors = [
            node
            for node in ast.walk(ast.parse(other, mode="eval"))
            if _boolean(node) == _boolean(place)
        ]
        donors = [node for node in donors if isinstance(node, (ast.BinOp, ast.Compare, ast.Name))]
        new = ast.unparse(rng.choice(donors)) if donors else ast.unparse(place)
    found = ast.unparse(_Replace(place, ast.parse(f"({new})", mode="eval").body).visit(tree))
    return _tidy(found) if len(found) < LENGTH else text


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _comparison(rng: random.Random) -> str:
    left = rng.choice(FEATURES)
    if rng.random() < 0.3:
        left += f" {rng.choice('+-')} {rng.randint(1, 8)} * {rng.choice(FEATURES)}"
    right = rng.choice([0, 1, 2, 3, 5, 8, 12, 20, 35, 60, 100])
    return f"{left} {rng.choice('<>')} {right}"


def _boolean(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr))
    )


def _tidy(text: str) -> str:
    return ast.unparse(ast.parse(text, mode="eval"))

"""Visits every state that a model can reach."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


def explore(
    start: State, steps: Callable[[State], Iterable[State]]
) -> tuple[set[State], set[State]]:
    """All states reachable from `start`, and those of them without a step onwards (the ends)."""
    seen, ends, todo = {start}, set(), [start]
    while todo:
        state = todo.pop()
        onwards = list(steps(state))
        if not onwards:
            ends.add(state)
        for after in onwards:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return seen, ends

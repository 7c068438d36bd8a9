"""Numbers, conditions and tables, as the pages have them."""

import statistics
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

Found = dict[str, Any]
# What the JSON alone has, and what every table has; the other versions follow a table's load.
MACHINE = ["kernel", "python", "compiler", "clang", "shmbridge", "numpy", "onnxruntime", "virtual"]
SHOWN = ["date", "commit", "cpu", "cpus", "load"]


def short(value: float) -> str:
    if value < 0:
        return f"-{short(-value)}"
    return f"{value:.0f}" if value >= 100 or not value else f"{value:.{3 if value >= 1 else 2}g}"


def change(value: float) -> str:
    """A relative change: -2.61%. What rounds to nothing has no sign."""
    return f"{value:+z.2%}".replace("+0.00%", "0.00%")


def span(values: Sequence[float]) -> str:
    """The median, then the minimum and maximum; one value if they are equal."""
    least, middle, most = (each(values) for each in (min, statistics.median, max))
    if least == most:
        return short(middle)
    return f"{short(middle)} ({short(least)}{' to ' if least < 0 else '–'}{short(most)})"


def per(many: Sequence[float], few: Sequence[float]) -> list[float]:
    """Ratios within rounds."""
    return [a / b for a, b in zip(many, few, strict=True)]


def conditions(found: Found) -> str:
    """When and where it was measured."""
    its = found["machine"]
    others = (f", {name} {its[name]}" for name in sorted(its.keys() - {*MACHINE, *SHOWN}))
    place = f"{its['cpus']} CPUs, {its['cpu']}, load {its['load']:.1f}"
    return f"Measured on {its['date']} ({place}{''.join(others)})."


def caption(text: str) -> list[str]:
    """A paragraph, wrapped, and an empty line."""
    return [*textwrap.wrap(text, 100, break_on_hyphens=False), ""]


def dated(table: Callable[[Found], list[str]]) -> Callable[[Found], list[str]]:
    """That table after a line with its conditions."""
    return lambda found: [*caption(conditions(found)), *table(found)]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in [head, *rows]]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]

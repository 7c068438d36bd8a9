"""The tables of peers.py and scale.py."""

from __future__ import annotations

import statistics
from typing import Any

from tables import per, short, span, table

Row = dict[str, Any]


def spread(row: Row, key: str, scale: float = 1) -> str:
    return span([each[key] / scale for each in row["rounds"]])


def middle(row: Row, key: str, scale: float = 1) -> str:
    """none: where all spin, eight clients on two CPUs do not come to an end."""
    rounds = row["rounds"]
    return short(statistics.median(each[key] / scale for each in rounds)) if rounds else "none"


def peers(found: dict[str, Any]) -> list[str]:
    """2 KB, from one client and from eight, without loops."""
    at = {(r["peer"], r["loops"], r["clients"]): r for r in found["rows"] if r["bytes"] == 2_000}
    rows = []
    for name in dict.fromkeys(row["peer"] for row in found["rows"]):
        one = at[name, 0, 1]
        times = [middle(one, key) for key in ("p99_us", "cpu_us")]
        rate = middle(at[name, 0, 8], "per_second", 1e3)
        rows.append([name, spread(one, "p50_us"), *times, rate])
    return table(["", "p50, µs", "p99", "CPU of both sides, µs", "8 clients, 1000/s"], rows)


def scale(found: dict[str, Any]) -> list[str]:
    """A host in Python, by the number of its runners."""
    rows = [
        [row["runners"], spread(row, "per_second", 1e3), middle(row, "host_cpu_us")]
        for row in found["rows"]
        if row["way"] == "host.serve(model)"
    ]
    return table(["runners", "thousand requests/s", "µs of the host's CPU for each"], rows)


def workers(found: dict[str, Any]) -> list[str]:
    rows, alone = [], {}
    for row in found["rows"]:
        rates = [each["per_second"] for each in row["rounds"]]
        ratio = span(per(rates, alone.setdefault(row["model"], rates)))
        p99 = middle(row, "p99_us", 1e3)
        rows.append([row["model"], row["workers"], span(rates), ratio, p99])
    return table(["model", "workers", "requests/s", "/ one worker", "p99, ms"], rows)

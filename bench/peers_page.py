"""The tables of peers.py and scale.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tables import caption, per, short, span, table

SITUATIONS = {
    "1 client": (0, 1),
    "1 client, 2 loops": (2, 1),
    "8 clients": (0, 8),
    "8 clients, 2 loops": (2, 8),
}
ASKED = (
    "shmbridge, C on both sides",
    "shmbridge, C asks",
    "shmbridge",
    "iceoryx2, polling, Python on both sides",
    "shared_memory, semaphores",
    "compilerinterface, C asks",
    "gRPC, C++ on both sides",
    "gRPC",
)
Row = dict[str, Any]


def median(row: Row, key: str) -> str:
    return short(statistics.median(each[key] for each in row["rounds"]))


def spread(row: Row, key: str, scale: float = 1) -> str:
    return span([each[key] / scale for each in row["rounds"]])


def by_situation(rows: Sequence[Row]) -> dict[tuple[str, int, int, int], Row]:
    return {(r["peer"], r["bytes"], r["loops"], r["clients"]): r for r in rows if r["rounds"]}


def cell(row: Row | None) -> str:
    if not row:
        return "-"
    many = row["clients"] > 1
    first = f"{spread(row, 'per_second', 1e3)} k/s" if many else spread(row, "p50_us")
    return "; ".join([first, *(median(row, key) for key in ("p99_us", "p99.9_us"))])


def peers(found: dict[str, Any]) -> list[str]:
    """Every library in every situation, a table for each size."""
    at = by_situation(found["rows"])
    names = list(dict.fromkeys(row["peer"] for row in found["rows"]))
    lines = caption(
        "One client: p50; p99; p99.9, in µs. Eight clients: thousand questions/s of all; p99; p99.9 "
        "in µs. CPU: µs of both sides for each question of one client without loops."
    )
    for size in sorted({row["bytes"] for row in found["rows"]}):
        rows = [[name] for name in names]
        for row in rows:
            row += [cell(at.get((row[0], size, *each))) for each in SITUATIONS.values()]
            first = at.get((row[0], size, 0, 1))
            row.append(median(first, "cpu_us") if first else "-")
        lines += [*table([f"{size // 1000} KB", *SITUATIONS, "CPU"], rows), ""]
    return lines[:-1]


def asked(found: dict[str, Any]) -> list[str]:
    """One client without loops, 2 KB, for the libraries that a compiler would use."""
    at = by_situation(found["rows"])
    keys = ("p50_us", "p99_us", "p99.9_us", "cpu_us")
    measured = [(name, at[name, 2_000, 0, 1]) for name in ASKED if (name, 2_000, 0, 1) in at]
    rows = [[name, *(spread(row, key) for key in keys)] for name, row in measured]
    return table(["µs", "p50", "p99", "p99.9", "CPU of both sides"], rows)


def scale(found: dict[str, Any]) -> list[str]:
    ways = list(dict.fromkeys(row["way"] for row in found["rows"]))
    at = {(row["way"], row["runners"]): row for row in found["rows"]}
    rows = [[count] for count in sorted({row["runners"] for row in found["rows"]})]
    for row in rows:
        each = [at[way, row[0]] for way in ways]
        row += [f"{spread(e, 'per_second', 1e3)}; {spread(e, 'host_cpu_us')}" for e in each]
    return [
        *caption("Thousand requests/s; µs of the host's CPU for each."),
        *table(["runners", *(f"`{way}`" for way in ways)], rows),
    ]


def workers(found: dict[str, Any]) -> list[str]:
    rows, alone = [], {}
    for row in found["rows"]:
        rates = [each["per_second"] for each in row["rounds"]]
        ratio = span(per(rates, alone.setdefault(row["model"], rates)))
        times = [spread(row, key, 1e3) for key in ("p50_us", "p99_us")]
        rows.append([row["model"], row["workers"], span(rates), ratio, *times])
    return table(["model", "workers", "requests/s", "/ one worker", "p50, ms", "p99, ms"], rows)

"""The tables of peers.py and scale.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

SITUATIONS = [(loops, clients) for clients in (1, 8) for loops in (0, 2)]
TITLES = {
    (0, 1): "1 client",
    (2, 1): "1 client, 2 loops",
    (0, 8): "8 clients",
    (2, 8): "8 clients, 2 loops",
}
FIRST_POWER = 9  # of the histogram: all below 1.02 us
Row = dict[str, Any]


def median(row: Row, key: str) -> float:
    return statistics.median(each[key] for each in row["rounds"])


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def by_situation(rows: Sequence[Row]) -> dict[tuple[str, int, int, int], Row]:
    return {(r["peer"], r["bytes"], r["loops"], r["clients"]): r for r in rows if r["rounds"]}


def spread(row: Row, key: str, scale: float = 1) -> str:
    return ranged([each[key] / scale for each in row["rounds"]])


def ranged(values: Sequence[float]) -> str:
    """The median, then the minimum and maximum."""
    return f"{short(statistics.median(values))} ({short(min(values))}–{short(max(values))})"


def cell(row: Row | None) -> str:
    if not row:
        return "-"
    many = row["clients"] > 1
    first = f"{spread(row, 'per_second', 1e3)} k/s" if many else spread(row, "p50_us")
    return "; ".join([first, *(short(median(row, key)) for key in ("p99_us", "p99.9_us"))])


def peers_table(found: dict[str, Any], size: int = 2_000) -> list[str]:
    at = by_situation(found["rows"])
    names = list(dict.fromkeys(row["peer"] for row in found["rows"]))
    rounds = sorted({len(row["rounds"]) for row in found["rows"]})
    lines = [
        "One client: p50; p99; p99.9, in µs. Eight clients: total throughput in thousand questions/s;",
        "p99; p99.9 in µs. CPU: µs of both sides for each question of one client without loops.",
        f"Brackets give the minimum and maximum of {' to '.join(map(str, {rounds[0]: 0, rounds[-1]: 0}))} rounds.",
        "",
        f"| {size // 1000} KB | " + " | ".join(TITLES[each] for each in SITUATIONS) + " | CPU |",
        "|---|" + "---|" * (len(SITUATIONS) + 1),
    ]
    for name in names:
        cells = [cell(at.get((name, size, *each))) for each in SITUATIONS]
        first = at.get((name, size, 0, 1))
        cells.append(short(median(first, "cpu_us")) if first else "-")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


ASKED = (
    "shmbridge, C on both sides",
    "shmbridge, C asks",
    "shmbridge",
    "iceoryx2, polling, Rust on both sides",
    "iceoryx2, polling, Python on both sides",
    "shared_memory, semaphores",
    "compilerinterface, C asks",
    "gRPC, C++ on both sides",
    "gRPC",
)


def asked(found: dict[str, Any]) -> list[str]:
    """One client without loops, 2 KB, for the libraries that a compiler would use."""
    at = by_situation(found["rows"])
    lines = ["| µs | p50 | p99 | p99.9 | CPU of both sides |", "|---|---|---|---|---|"]
    for name in ASKED:
        if row := at.get((name, 2_000, 0, 1)):
            cells = [spread(row, key) for key in ("p50_us", "p99_us", "p99.9_us", "cpu_us")]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def histogram(found: dict[str, Any], size: int = 2_000) -> list[str]:
    """Which share of the questions of one client without loops takes how long, in powers of two."""
    rows = [
        row
        for (_, *situation), row in by_situation(found["rows"]).items()
        if situation == [size, 0, 1]
    ]
    rounds = [
        zip_longest(*(each["log2_ns"] for each in row["rounds"]), fillvalue=0) for row in rows
    ]
    counts = [list(map(sum, each)) for each in rounds]
    powers = range(FIRST_POWER, max(map(len, counts)))
    lines = [
        f"% of the questions of one client without loops ({size // 1000} KB) that take less than this,",
        "but not less than the column before:",
        "",
        "| µs | " + " | ".join(short(2.0 ** (power + 1) / 1000) for power in powers) + " |",
        "|---|" + "---|" * len(powers),
    ]
    for row, each in zip(rows, counts, strict=True):
        shares = [sum(each[: FIRST_POWER + 1]), *each[FIRST_POWER + 1 :]]
        percent = [100 * share / sum(each) for share in shares]
        cells = [
            (f"{part:.0f}" if part >= 10 else f"{part:.2g}") if part else "" for part in percent
        ]
        cells += [""] * (len(powers) - len(cells))
        lines.append(f"| {row['peer']} | " + " | ".join(cells) + " |")
    return lines


def peers(found: dict[str, Any]) -> list[str]:
    sizes = sorted({row["bytes"] for row in found["rows"]})
    tables = [[*peers_table(found, size), "", *histogram(found, size)] for size in sizes]
    return [line for each in tables for line in (*each, "")][:-1]


def scale(found: dict[str, Any]) -> list[str]:
    ways = list(dict.fromkeys(row["way"] for row in found["rows"]))
    runners = sorted({row["runners"] for row in found["rows"]})
    at = {(row["way"], row["runners"]): row for row in found["rows"]}
    lines = [
        "Thousand requests/s; µs of the host's CPU for each. Brackets give the minimum and maximum of",
        "the rounds.",
        "",
        "| runners | " + " | ".join(f"`{way}`" for way in ways) + " |",
        "|---|" + "---|" * len(ways),
    ]
    for count in runners:
        cells = [
            f"{spread(at[way, count], 'per_second', 1e3)}; {spread(at[way, count], 'host_cpu_us')}"
            for way in ways
        ]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return lines


def workers(found: dict[str, Any]) -> list[str]:
    lines = [
        "| model | workers | requests/s | / one worker | p50, ms | p99, ms |",
        "|---|---|---|---|---|---|",
    ]
    alone: dict[str, list[float]] = {}
    for row in found["rows"]:
        rates = [each["per_second"] for each in row["rounds"]]
        one = alone.setdefault(row["model"], rates)
        cells = [ranged(rates), ranged([a / b for a, b in zip(rates, one, strict=True)])]
        cells += [spread(row, key, 1e3) for key in ("p50_us", "p99_us")]
        lines.append(f"| {row['model']} | {row['workers']} | " + " | ".join(cells) + " |")
    return lines

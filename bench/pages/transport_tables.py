"""The tables of sweep.py, compilation.py, peers.py and scale.py."""

import statistics
from typing import Any

from bench.pages.tables import Found, caption, conditions, per, short, span, table

Row = dict[str, Any]


def spread(row: Row, key: str, scale: float = 1) -> str:
    return span([each[key] / scale for each in row["rounds"]])


def middle(row: Row, key: str, scale: float = 1) -> str:
    """none: where all spin, eight clients on two CPUs do not come to an end."""
    rounds = row["rounds"]
    return short(statistics.median(each[key] / scale for each in rounds)) if rounds else "none"


def peers(found: Found) -> list[str]:
    """2 KB, from one client and from eight, without loops."""
    at = {(r["peer"], r["loops"], r["clients"]): r for r in found["rows"] if r["bytes"] == 2_000}
    rows = []
    for name in dict.fromkeys(row["peer"] for row in found["rows"]):
        one = at[name, 0, 1]
        times = [middle(one, key) for key in ("p99_us", "cpu_us")]
        rate = middle(at[name, 0, 8], "per_second", 1e3)
        rows.append([name, spread(one, "p50_us"), *times, rate])
    return table(["", "p50, µs", "p99", "CPU of both sides, µs", "8 clients, 1000/s"], rows)


def scale(found: Found) -> list[str]:
    """A host in Python, by the number of its runners."""
    rows = [
        [row["runners"], spread(row, "per_second", 1e3), middle(row, "host_cpu_us")]
        for row in found["rows"]
        if row["way"] == "host.serve(model)"
    ]
    return table(["runners", "thousand requests/s", "µs of the host's CPU for each"], rows)


def workers(found: Found) -> list[str]:
    rows, alone = [], {}
    for row in found["rows"]:
        rates = [each["per_second"] for each in row["rounds"]]
        ratio = span(per(rates, alone.setdefault(row["model"], rates)))
        p99 = middle(row, "p99_us", 1e3)
        rows.append([row["model"], row["workers"], span(rates), ratio, p99])
    return table(["model", "workers", "requests/s", "/ one worker", "p99, ms"], rows)


def sweep(found: Found) -> list[str]:
    rows = []
    for way in found["ways"]:
        low, high = map(short, way["ratio_range"])
        rows.append([way["way"], f"{short(way['ratio_to_shm'])} ({low}–{high})"])
    return table(["sum of the round trips", "/ shm"], rows)


WAYS = {
    "onnx": "`onnx://`, ONNX Runtime in the compiler",
    "shm": "`shm://`, a host in C",
    "shm_each": "- a host for each compiler",
    "shm_8": "- 8 in flight",
    "shm_py": "`shm://`, a Python function",
    "shm_py_8": "- 8 in flight",
    "shm_onnx": "`shm://`, an ONNX model",
    "llvm": "LLVM's pipes, a reader in C for each compiler",
    "llvm_py": "LLVM's pipes, a reader in Python for each",
    "mlcb": "ML-Compiler-Bridge's pipes, Python for each",
    "grpc": "gRPC, C++ on both sides",
    "grpc_py": "gRPC, C++ to Python",
}


def compilation(found: Found) -> list[str]:
    """A question between the steps of a compilation."""

    situations = [each for each in found["situations"] if not each["loops"]]
    head, rows = ["µs a question over `aot`; time / `aot`"], [[name] for name in WAYS.values()]
    for each in situations:
        figures = each["figures"]
        head.append(f"{each['jobs']} compiler{'s' * (each['jobs'] > 1)}")
        for way, row in zip(WAYS, rows, strict=True):
            its = figures.get(way)
            added = its and f"{short(its['over aot'][1])}; {its['wall / aot'][1]:.2f}"
            row.append(added or "-")
    counts = ", ".join({str(each["alternations"]): 1 for each in situations})
    text = f"The figures are medians of {counts} alternations. {conditions(found)}"
    return [*caption(text), *table(head, [row for row in rows if set(row[1:]) != {"-"}])]

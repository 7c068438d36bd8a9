"""The promised figures, each with the program that measures it: the last part of acceptance.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).absolute().parent
SECONDS = 600  # that one program may take


@dataclass
class Figure:
    """One figure. value: from the program's JSON; a figure without a program takes too long to
    measure here."""

    what: str
    limit: float
    unit: str
    command: str
    value: Callable[[Any], float] | None = None


def _trip(bytes_: int, name: str, base: str) -> Callable[[Any], float]:
    """A round trip in multiples of another; "": in microseconds."""

    def value(found: Any) -> float:
        ns = {(row["pair"], row["bytes"]): row["ns"] for row in found["round_trips"]["rows"]}
        return float(
            ns[name, bytes_] / (ns[base, bytes_ if base != "lines" else 4] if base else 1e3)
        )

    return value


def _decision(found: Any) -> float:
    ways = {way["way"]: way for way in found["ways"]}
    return float(median(ways["shm"]["us_per_question_over_aot"]))


def _replies(found: Any) -> float:
    return float(max(row["ratio"] for row in found["replies"] if "np." in row["pair"]))


def _growth(found: Any) -> float:
    counts = list(found["instructions"].values())
    return float(max(counts) / counts[0])


def _system_calls(found: Any) -> float:
    return float(max(row["calls"] for row in found["system_calls"].values()))


def _idle(found: Any) -> float:
    return float(max(found["idle"].values()))


def _launch(found: Any) -> float:
    taken = {way: median(time for time, _ in rounds) for way, rounds in found["seconds"].items()}
    return float(taken["run"] / taken["plain"])


def _step(found: Any) -> float:
    return max(float(row["cpu"]) for row in found["rows"] if row["contender"] == "vector")


def _four(found: Any) -> float:
    seconds = found["seconds"]
    return median(a / b for a, b in zip(seconds["shmbridge"], seconds["inside"], strict=True))


def _direct(found: Any) -> float:
    """The greatest "ratio" at any depth."""
    if isinstance(found, list):
        return max(map(_direct, found), default=0.0)
    if not isinstance(found, dict):
        return 0.0
    return max(float(found.get("ratio", 0)), _direct(list(found.values())))


TRIPS = "run.py --only round_trips --minutes 1"
FIGURES = [
    Figure("decision in a compilation, over aot", 6, "us", "deploy.py --rounds 3", _decision),
    Figure("C - C, 4 bytes, spinning", 1.15, "x lines", TRIPS, _trip(4, "C - C, spin", "lines")),
    Figure(
        "C - Python - C, float32[500]", 5, "x line", TRIPS, _trip(2000, "C - Python - C", "line")
    ),
    Figure("Python - Python, 4 bytes", 1.6, "us", TRIPS, _trip(4, "Python - Python", "")),
    Figure("adaptive waiting, every row", 1.5, "x the better", "waiting.py"),
    Figure("numpy in a reply", 1.2, "x float", "run.py --only replies --minutes 1", _replies),
    Figure("growth of instructions, 4 B to 64 MB", 1, "x", "run.py --only instructions", _growth),
    Figure("calls while spinning", 0, "calls", "run.py --only system_calls", _system_calls),
    Figure("idle host", 1, "% of a core", "run.py --only idle", _idle),
    Figure(
        "four clangs at once", 1.05, "x inside", "llvm_priority.py --at-once 4 --rounds 3", _four
    ),
    Figure("training step, CPU", 3, "us", "steps.py --only vector --sizes 8 --rounds 3", _step),
    Figure("small file, run --connect", 1.1, "x plain", "launch.py", _launch),
    Figure("onnx, aot in the compiler", 1.05, "x direct", "in_process.py", _direct),
    Figure("the suite", 12, "minutes", "bash tests/run"),
]


def report(only: str, folder: Path) -> None:
    """Measures and prints each figure as met or not. folder: for the programs' JSON."""
    measured: dict[str, Any] = {}
    print(f"\n{'figure':40}{'held to':>20}{'measured':>12}")
    for figure in FIGURES:
        if only not in f"figure, {figure.what}":
            continue
        held = f"{figure.limit:g} {figure.unit}"
        if figure.value is None:
            print(f"{figure.what:40}{held:>20}{'-':>12}  not measured here: {figure.command}")
            continue
        if figure.command not in measured:
            measured[figure.command] = _run(figure.command, folder / "figure.json")
        found = measured[figure.command]
        if isinstance(found, str):
            print(f"{figure.what:40}{held:>20}{'-':>12}  not measured: {figure.command}: {found}")
            continue
        try:
            value = figure.value(found)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            print(f"{figure.what:40}{held:>20}{'-':>12}  not measured: {figure.command}: {error!r}")
            continue
        met = "met" if value <= figure.limit * 1.005 else "NOT MET"
        print(f"{figure.what:40}{held:>20}{value:12.3g}  {met}", flush=True)


def _run(command: str, to: Path) -> Any:
    """A program's JSON, or a text with the reason for its absence."""
    script, *words = command.split()
    to.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [sys.executable, HERE / script, *words, "--json", to],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return json.loads(to.read_text())
    except subprocess.TimeoutExpired:
        return f"longer than {SECONDS} s"
    except OSError:
        return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]

"""float32[500], [1000], … [50 000] through shared memory, and through pipes with each SerDes; compilerinterface beside them.

python bench/sweep.py [--quick] [--json FILE] [--plot FILE.svg]

Needs what run.py needs, and for the last rows `pip install compilerinterface==0.0.2 grpcio`. README.md tells how it measures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairs import HERE, Pair, Place
from run import build, machine

STEP, LONGEST = 500, 50_000  # floats
ROUNDS, SECONDS = 5, 0.02  # of a block


@dataclass(frozen=True)
class Way:
    """How a question gets to the model. serdes "" is shared memory; in_c: the compiler is bench/runner.c, else Python's."""

    name: str
    serdes: str
    in_c: bool = True
    theirs: bool = False  # compilerinterface is the host


WAYS = (
    Way("shm", ""),
    Way("pipe, flatbuffers", "flatbuffers"),
    Way("pipe, bitstream", "bitstream"),
    Way("pipe, json", "json"),
    Way("compilerinterface, bytes", "bitstream", theirs=True),
    Way("compilerinterface, json", "json", theirs=True),
    Way("shm, Python runner", "", in_c=False),
    Way("pipe, protobuf, Python runner", "protobuf", in_c=False),
)


@dataclass
class Sweep:
    """Median ns of a round trip: rounds[round][i] for the i-th length."""

    way: Way
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def medians(self) -> list[float]:
        """Of each length, in ns."""
        return [statistics.median(at) for at in zip(*self.rounds, strict=True)]

    def ratio(self, other: Sweep) -> tuple[float, float, float]:
        """Of the sums over a round's lengths: the median over the rounds, and the least and the greatest."""
        ratios = [sum(mine) / sum(its) for mine, its in zip(self.rounds, other.rounds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def start(way: Way, place: Place, stack: ExitStack) -> Pair:
    """Its two processes. RuntimeError where one of them does not start, and has said why."""
    name = f"sweep-{os.getpid()}"
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-"))) / "pipe"
    url = f"pipe://{path}?serdes={way.serdes}" if way.serdes else f"shm://{name}-{'c' if way.in_c else 'python'}"
    far = [sys.executable, str(HERE / "sweep_host.py"), str(place.far), url, *["compilerinterface"][: way.theirs]]
    near = place.c_runner("adaptive") if way.in_c else place.python_runner("adaptive")
    return stack.enter_context(Pair(way.name, far, near))


def measure(place: Place, lengths: Sequence[int], rounds: int, seconds: float) -> list[Sweep]:
    """All ways by turns, length by length; everything starts anew for each round."""
    sweeps = [Sweep(way) for way in WAYS]
    for i in range(rounds):
        with ExitStack() as stack:
            pairs = []
            for sweep in list(sweeps):
                try:
                    pairs.append(start(sweep.way, place, stack))
                except RuntimeError as error:
                    if i or sweep.way is WAYS[0]:
                        raise
                    sweeps.remove(sweep)
                    print(f"left out: {error}", file=sys.stderr)
            by_length = [[pair.block(4 * n, seconds)[0] for pair in pairs] for n in lengths]
        for sweep, its in zip(sweeps, zip(*by_length, strict=True), strict=True):
            sweep.rounds.append(list(its))
    return sweeps


def table(sweeps: Sequence[Sweep], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Prints, and returns what the JSON gets."""
    base = sweeps[0]
    theirs = next((sweep for sweep in sweeps if sweep.way.theirs), None)
    shown = [lengths[0], lengths[len(lengths) // 2], lengths[-1]]
    columns = [*(f"[{n}] us" for n in shown), "sum us", "x shm", "least - greatest", "x c.i. bytes"]
    print(f"{'':30}" + "".join(f"{column:>{18 if '-' in column else 13}}" for column in columns))
    results = []
    for sweep in sweeps:
        medians = sweep.medians
        ratio, low, high = sweep.ratio(base)
        beside = sweep.ratio(theirs)[0] if theirs else None
        at = "".join(f"{medians[lengths.index(n)] / 1e3:>13.2f}" for n in shown)
        span = f"{low:.1f} - {high:.1f}"
        last = "-" if beside is None else f"{beside:.4f}"
        print(f"{sweep.way.name:30}{at}{sum(medians) / 1e3:>13.0f}{ratio:>13.1f}{span:>18}{last:>13}")
        results.append(
            {
                "way": sweep.way.name,
                "runner": "C" if sweep.way.in_c else "Python",
                "ns": [round(value, 1) for value in medians],
                "sum_us": round(sum(medians) / 1e3, 1),
                "ratio_to_shm": round(ratio, 2),
                "ratio_range": [round(low, 2), round(high, 2)],
                "ratio_to_compilerinterface_bytes": beside and round(beside, 5),
            }
        )
    return results


def plot(sweeps: Sequence[Sweep], lengths: Sequence[int], path: Path) -> None:
    """Round trip over length, both logarithmic; every line is told by its dashes, its marks, and its name at its end."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    styles = ["-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))]
    ends: list[tuple[float, str, Any]] = []
    for i, sweep in enumerate(sweeps):
        us = [value / 1e3 for value in sweep.medians]
        (line,) = axes.plot(
            lengths,
            us,
            linestyle=styles[i % len(styles)],
            marker="osD^vX*P"[i % 8],
            markevery=max(1, len(us) // 8),
            markersize=5,
        )
        ends.append((us[-1], sweep.way.name, line.get_color()))
    axes.set(xscale="log", yscale="log", xlabel="floats in the question", ylabel="a round trip, microseconds")
    axes.set_xlim(lengths[0], lengths[-1])
    axes.grid(True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    low, high = axes.get_ylim()
    place = 0.0
    for us, name, colour in sorted(ends):  # names that would lie over each other move up
        place = max(us, place * (high / low) ** 0.035)
        axes.annotate(
            name, (lengths[-1], us), (lengths[-1] * 1.08, place), color=colour, va="center", annotation_clip=False
        )
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few lengths: no figures to quote")
    parser.add_argument("--step", type=int, default=STEP, help=f"floats between two lengths (default {STEP})")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"sweeps, each with new processes (default {ROUNDS})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything there")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="also draw it (needs matplotlib)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever is stopped goes on and ends
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("two cores are needed: this process may use one only", file=sys.stderr)
        return 1
    lengths = [500, 5_000, 50_000] if options.quick else list(range(options.step, LONGEST + 1, options.step))
    about = machine()
    for name, value in about.items():
        print(f"{name:12} {value}")
    with tempfile.TemporaryDirectory() as directory:
        build(Path(directory))
        place = Place(Path(directory), cores[0], cores[1])
        sweeps = measure(
            place, lengths, 1 if options.quick else options.rounds, SECONDS / 10 if options.quick else SECONDS
        )
    results = table(sweeps, lengths)
    if options.json:
        options.json.write_text(json.dumps({"machine": about, "lengths": lengths, "ways": results}, indent=1) + "\n")
    if options.plot:
        plot(sweeps, lengths, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())

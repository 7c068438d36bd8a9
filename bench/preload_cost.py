"""The cost of the preloaded library for a process without a channel, such as make, sh and ld.

    python bench/preload_cost.py [--rounds N] [--json FILE]

Alternates no library, the library, and an empty library: /bin/true started 50 times; a C program's
reads and writes of one byte; its opens and closes. Ratios are taken within a round, to the process
without; the medians of the rounds are printed, with 95 % bootstrap intervals.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from interval import Interval, interval
from program import options, write

from shmbridge import _config

STARTS, CALLS = 50, 200_000
ROWS = {
    "start": "a start of /bin/true",
    "transfer": "read or write, 1 byte",
    "reopen": "open or close",
}


def environments(empty: Path) -> dict[str, dict[str, str]]:
    """By way: without a library, with an empty one, and with ours, as under `shmbridge run`."""
    without = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    ours = {"SHMBRIDGE_LLVM_BASE": "/tmp/shmbridge-nowhere", "SHMBRIDGE_URL": "nobody"}
    return {
        "without": without,
        "empty": without | {"LD_PRELOAD": str(empty)},
        "preloaded": without | ours | {"LD_PRELOAD": str(_config.preload())},
    }


def start(environment: dict[str, str]) -> float:
    """Seconds for one start and end of /bin/true."""
    begun = time.perf_counter()
    for _ in range(STARTS):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], environment), 0)
    return (time.perf_counter() - begun) / STARTS


def measure(program: Path, empty: Path, rounds: int) -> dict[str, dict[str, Interval]]:
    """By row: seconds without a library, and the ratios with an empty one and with ours."""
    ways = list(environments(empty).items())
    taken: dict[str, dict[str, list[float]]] = {row: {way: [] for way, _ in ways} for row in ROWS}
    for number in range(rounds):
        for way, environment in ways if number % 2 == 0 else reversed(ways):
            calls = subprocess.run(
                [program, str(CALLS)], env=environment, check=True, stdout=subprocess.PIPE
            ).stdout
            times = [start(environment), *(float(ns) * 1e-9 for ns in calls.split())]
            for row, seconds in zip(ROWS, times, strict=True):
                taken[row][way].append(seconds)

    def ratio(row: str, way: str) -> Interval:
        return interval(
            [b / a for a, b in zip(taken[row]["without"], taken[row][way], strict=True)]
        )

    return {
        row: {
            "without_s": interval(taken[row]["without"]),
            "empty_ratio": ratio(row, "empty"),
            "ratio": ratio(row, "preloaded"),
        }
        for row in ROWS
    }


def main() -> None:
    parser = options(__doc__, rounds=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "preload_cost"
        empty = Path(folder) / "empty.so"
        subprocess.run(["cc", "-O2", Path(__file__).with_suffix(".c"), "-o", program], check=True)
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", empty], check=True)
        result = measure(program, empty, given.rounds)
    print(f"{'':24}{'without':>12}{'an empty library':>28}{'shmbridge':>28}")
    for row, what in ROWS.items():
        r = result[row]
        scale, unit = (1e6, "us") if row == "start" else (1e9, "ns")
        print(
            f"{what:24}{r['without_s'].median * scale:9.1f} {unit}{r['empty_ratio'].text(3):>28}{r['ratio'].text(3):>28}"
        )
    write(given.json, {"rounds": given.rounds} | result)


if __name__ == "__main__":
    main()

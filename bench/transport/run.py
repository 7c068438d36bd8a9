"""Every figure about speed, measured in one run: python bench run [--quick] [--only ROWS]
[--json FILE]."""

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import program
from bench.builds import build
from bench.program import machine
from bench.transport import rows
from bench.transport.pairs import Place


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test of all rows, in seconds")
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(rows.ROWS)}")
    parser.add_argument("--minutes", type=float, default=5, help="about how long (default 5)")
    options = parser.parse_args()
    # also continues and ends stopped processes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("two cores are needed, but this process may use only one", file=sys.stderr)
        return 1
    chosen = options.only.split(",") if options.only else list(rows.ROWS)
    unknown = set(chosen) - rows.ROWS.keys()
    if unknown:
        parser.error(
            f"--only: expected some of {', '.join(rows.ROWS)}; found {', '.join(sorted(unknown))}"
        )
    effort = 0.0 if options.quick else options.minutes / 5
    results: dict[str, Any] = {"machine": machine()}
    for name, value in results["machine"].items():
        print(f"{name:12} {value}")
    with tempfile.TemporaryDirectory() as directory:
        build(Path(directory))
        place = Place(Path(directory), cores[0], cores[1])
        for name in chosen:
            print(f"\n== {name}: {(rows.ROWS[name].__doc__ or '').strip()}", flush=True)
            results[name] = rows.ROWS[name](place, effort)
    program.write(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures most of what is in docs/results.md and docs/performance.md again: python bench results
[--only NAME,...] [--list]

Each figure is a program of the other folders, which writes docs/results/NAME.json; `python
bench results_page` then writes the pages. All take an hour on an idle machine. README.md and the
programs describe their requirements; a figure that cannot be measured here keeps the file that it
has.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).absolute().parents[1]
RESULTS = BENCH.parent / "docs" / "results"
FIGURES = {
    "inline": ["deploy", "inline", "--rounds", "3"],
    "phases": ["deploy", "phases", "--rounds", "3"],
    "allocation": ["deploy", "allocation", "--rounds", "5"],
    "jobs": ["deploy", "jobs", "--rounds", "3"],
    "threads": ["deploy", "threads", "--rounds", "3"],
    "regalloc": ["allocator"],
    "integration": ["integration"],
    "training": ["training"],
    "sweep": ["sweep", "--rounds", "4"],
    "compilation": ["compilation", "--jobs", "1,2,4", "--loops", "0"],
    "workers": ["scale", "--workers", "--rounds", "3", "--seconds", "4"],
    "scale": ["scale"],
    "peers": ["peers"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(FIGURES), help="of " + ",".join(FIGURES))
    parser.add_argument("--list", action="store_true", help="only print the commands")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for name in options.only.split(","):
        words = FIGURES[name]
        command = [sys.executable, BENCH, *words, "--json", RESULTS / f"{name}.json"]
        told = f"python bench {' '.join(words)} --json docs/results/{name}.json"
        print(told if options.list else f"\n== {told}", flush=True)
        if options.list:
            continue
        start = time.monotonic()
        # from here, since in the clone's root `import shmbridge` finds the source
        if subprocess.run(command, cwd=BENCH).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        print(f"not measured, files unchanged: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

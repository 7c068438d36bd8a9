"""Explores each scenario as far as is feasible, in minutes, for docs/reliability.md. The argument
is the program that CMake builds:

python tests/explore/record.py build/tests/explore/explore
"""

import re
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from support.reliability import record

# --preemptions, to which a scenario may add; any number in the others.
FEW = {"in flight": 3, "late": 2, "runner dies": 3}
SCENARIOS = ["closes", "lies", "messages", "observer", "host dies", *FEW, "views"]
LINE = r".{12} +(\w+) preemptions +(\d+) situations +\d+ steps +\d+ ends +([\d.]+) s  (.*)"


def main():
    for name in SCENARIOS:
        command = [sys.argv[1], "--preemptions", str(FEW.get(name, -1)), name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        limit, situations, seconds, what = re.findall(LINE, text)[0]
        figures = {"situations": int(situations), "cpu_seconds": float(seconds)}
        record(f"explored {name}", what=what, preemptions=limit, **figures)
        print(text, end="", flush=True)


if __name__ == "__main__":
    main()

"""python_runner.py over the runner in pure Python."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import python_runner  # noqa: E402
from pure_python import api  # noqa: E402

if __name__ == "__main__":
    python_runner.main(api.connect)

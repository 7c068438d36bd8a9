"""c/ask.c in Python: asks a model about each function of a C file, to try a model without a
compiler.

python ask.py URL FILE
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

import shmbridge

# Feature i is how often PATTERNS[i] occurs in the function's text.
PATTERNS = [
    "\n",
    ";",
    "if (",
    "for (",
    "while (",
    "switch (",
    "case ",
    "return",
    "(",
    "[",
    "->",
    "*",
    "=",
    "+",
    '"',
    "{",
]
FUNCTION = re.compile(
    r"^(?=[a-zA-Z])[^(;{]*?(\w+)\([^;{]*\{.*?(?:^|[^\n])\}$", re.MULTILINE | re.DOTALL
)


def main(url: str, path: str) -> None:
    """Prints the advice for each function, or the heuristic's choice if there is none."""
    with shmbridge.connect(url) as runner:
        for function in FUNCTION.finditer(Path(path).read_text()):
            name, text = function[1], function[0]
            features = np.array([text.count(pattern) for pattern in PATTERNS], np.float32)
            try:
                inline = runner.evaluate({"features": features, "function": name}, dtype="int64")
            except shmbridge.ShmbridgeError as error:
                print(f"warning: {error}; the heuristic answers", file=sys.stderr)
                inline = features[0] < 5
            print(f"{name}: {'inline' if inline else 'call'}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except shmbridge.ShmbridgeError as error:
        sys.exit(str(error))

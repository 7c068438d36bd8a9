"""Real programs to compile, from sdists on PyPI."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

# The sdist, and a file in it.
SOURCES = {
    "zstd": ("zstandard==0.25.0", "zstd/zstd.c"),  # 50,000 lines
    "sqlite": ("sqlean.py==3.50.4.5", "sqlite/sqlite3.c"),  # its amalgamation: 260,000 lines
    "lua": ("lupa==2.8", "third-party/lua54/onelua.c"),  # includes 33 files beside it: 30,000 lines
    "zopfli": ("zopfli==0.4.3", "zopfli/src/zopfli/zopfli_lib.c"),  # of 12 C files in one folder
    "marisa": ("marisa-trie==1.4.1", "marisa-trie/lib/marisa/trie.cc"),  # of 9 C++ files below lib
}


def fetch_source(folder: Path, name: str) -> Path:
    """That file."""
    package, path = SOURCES[name]
    return fetch(folder, package) / path


def fetch(folder: Path, package: str, **env: str) -> Path:
    """Downloads an sdist, unless it is there, and unpacks it: its folder."""
    to = folder / package.partition("=")[0]
    if not to.exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "-d", f"{to}.part", package], check=True, env=os.environ | env)
        with tarfile.open(next(Path(f"{to}.part").glob("*.tar.gz"))) as sdist:
            sdist.extractall(f"{to}.part", [member for member in sdist if member.isreg()])
        Path(f"{to}.part").rename(to)
    return next(path for path in to.iterdir() if path.is_dir())

"""Real programs to compile, from sdists on PyPI."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path


def fetch_zstd(folder: Path) -> Path:
    """zstd.c: 50,000 lines."""
    return _fetch(folder, "zstandard==0.25.0", "zstd/zstd.c")


def fetch_sqlite(folder: Path) -> Path:
    """sqlite3.c 3.50.4, SQLite's amalgamation: 260,000 lines."""
    return _fetch(folder, "sqlean.py==3.50.4.5", "sqlite/sqlite3.c")


def fetch_zopfli(folder: Path) -> Path:
    """One of zopfli's 12 C files, in one folder: 3,400 lines in all."""
    return _fetch(folder, "zopfli==0.4.3", "zopfli/src/zopfli/zopfli_lib.c")


def fetch_marisa(folder: Path) -> Path:
    """One of marisa-trie's 9 C++ files, in folders below marisa-trie/lib."""
    return _fetch(folder, "marisa-trie==1.4.1", "marisa-trie/lib/marisa/trie.cc")


def _fetch(folder: Path, package: str, path: str) -> Path:
    """Downloads an sdist and unpacks the folder that holds `path`, which it returns."""
    to = folder / package.partition("=")[0]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "-d", to, package], check=True)
    with tarfile.open(next(to.glob("*.tar.gz"))) as sdist:
        beside = f"/{path.partition('/')[0]}/"
        sdist.extractall(to, [m for m in sdist if beside in m.name and m.isreg()])
    return next(to.glob(f"*/{path}"))

"""Real programs to compile, from sdists on PyPI."""

from __future__ import annotations

import os
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


def fetch_lua(folder: Path) -> Path:
    """onelua.c 5.4, which includes the 33 files beside it: 30,000 lines."""
    return _fetch(folder, "lupa==2.8", "third-party/lua54/onelua.c")


def fetch_zopfli(folder: Path) -> Path:
    """One of zopfli's 12 C files, in one folder: 3,400 lines in all."""
    return _fetch(folder, "zopfli==0.4.3", "zopfli/src/zopfli/zopfli_lib.c")


def fetch_marisa(folder: Path) -> Path:
    """One of marisa-trie's 9 C++ files, in folders below marisa-trie/lib."""
    return _fetch(folder, "marisa-trie==1.4.1", "marisa-trie/lib/marisa/trie.cc")


def _fetch(folder: Path, package: str, path: str) -> Path:
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

"""Fetches or generates the programs and compiles them to unoptimised bitcode."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared

from shmbridge.training import Corpus
from shmbridge.training.scores import ir_instructions

# -Oz marks each function `minsize`, and without LLVM's passes all the work is left to opt. (-O0 would forbid opt to touch a function.)
CLANG = "clang-22 -w -Oz -Xclang -disable-llvm-passes -emit-llvm -c"
# Modules of fewer instructions, counted before any pass, show little; larger ones take long.
FEWEST, MOST = 200, 8_000

# Real programs: the package on PyPI whose sources have them, what clang needs to know there, and the files.
CMARK = "third_party/cmark"
CRYPTO = """
    AES ARC2 MD4 MD5 RIPEMD160 SHA1 SHA256 SHA512 Salsa20 blake2b blowfish chacha20 ec_common ed25519 keccak nat nat_mod
    pkcs1_decode poly1305 raw_ctr raw_ocb scrypt
"""
REAL = {
    "zopfli": ("zopfli==0.4.3", [], ["zopfli/src/zopfli/*.c"]),
    "cmark": (
        "cmarkgfm==2025.10.22",
        ["-Igenerated/unix", f"-I{CMARK}/src", f"-I{CMARK}/extensions"],
        [f"{CMARK}/src/*.c", f"{CMARK}/extensions/*.c"],
    ),
    "lz4": ("lz4==4.4.5", [], ["lz4libs/*.c"]),
    "quickjs": (
        "quickjs==1.19.4",
        ["-D_GNU_SOURCE"],
        [f"upstream-quickjs/{name}.c" for name in ("cutils", "libregexp", "libunicode")],
    ),
    "brotli": (
        "brotli==1.2.1",
        ["-Ic/include"],
        [f"c/{part}/*.c" for part in ("common", "dec", "enc")],
    ),
    "pycryptodome": (
        "pycryptodome==4.4.0",
        ["-DHAVE_STDINT_H", "-DHAVE_POSIX_MEMALIGN"],
        [f"src/{name}.c" for name in CRYPTO.split()],
    ),
    "stb_vorbis": ("miniaudio==1.71", [], ["miniaudio/stb_vorbis.c"]),
}
TRAIN, TEST = ("zopfli", "cmark", "lz4", "quickjs"), ("brotli", "pycryptodome", "stb_vorbis")
TRAIN_SEEDS, TEST_SEEDS = range(1, 41), range(1001, 1011)  # of csmith

SMALL = {
    "train": """
static int square(int x) { return x * x; }
int sum(const int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += square(a[i]); return s; }
int power(int n) { if (n < 2) return 1; return n * power(n - 1); }
""",
    "test": """
static int least(int a, int b) { return a < b ? a : b; }
int first(const char *s, char c) { int i = 0; while (s[i] && s[i] != c) i++; return s[i] ? i : -1; }
int all(int *a, int n) { int m = a[0]; for (int i = 1; i < n; i++) { m = least(m, a[i]); a[i] = m; } return m; }
""",
}


REAL_ONLY = (("train", TRAIN, ()), ("test", TEST, ()))
ALL = (("train", TRAIN, TRAIN_SEEDS), ("test", TEST, ()), ("generated", (), TEST_SEEDS))


def corpora(folder: Path, parts: Any = ALL) -> dict[str, Corpus]:
    """ "train", "test" (real programs of other packages) and "generated" (other seeds of csmith):
    bitcode below `folder`, made where it is missing."""
    for name, real, seeds in parts:
        if not (folder / name).exists():
            new = folder / f"{name}.new"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            for program in real:
                _fetch(program, new)
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda seed, to=new: _generate(seed, to), seeds))
            for bitcode in new.glob("*.bc"):
                if not FEWEST <= ir_instructions(bitcode) <= MOST:
                    bitcode.unlink()
            new.rename(folder / name)
    return {name: Corpus.from_sources(*sorted((folder / name).glob("*.bc"))) for name, *_ in parts}


def compile_c(
    source: Path, bitcode: Path, flags: Iterable[str] = (), cwd: Path | None = None
) -> None:
    """Compiles C to bitcode for opt to optimise."""
    subprocess.run([*CLANG.split(), *flags, source, "-o", bitcode], check=True, cwd=cwd)


def _fetch(program: str, to: Path) -> None:
    """Downloads a package's sources and compiles its program, a module for each file."""
    package, flags, patterns = REAL[program]
    sdists = to / "sdists"
    root = shared.fetch(package, sdists)
    for source in sorted(path for pattern in patterns for path in root.glob(pattern)):
        compile_c(source, to / f"{program}-{source.stem}.bc", flags, root)
    shutil.rmtree(sdists)


def _generate(seed: int, to: Path) -> None:
    """A program by csmith."""
    source = to / f"csmith-{seed}.c"
    command = ["csmith", "--seed", str(seed), "--max-funcs", "4", "-o", source]
    with tempfile.TemporaryDirectory() as folder:  # where it writes and reads platform.info
        subprocess.run(command, check=True, cwd=folder)
    compile_c(source, source.with_suffix(".bc"), ["-I/usr/include/csmith"])


def small(folder: Path) -> dict[str, Corpus]:
    """Two programs of a few lines, one to train on and one to test on."""
    corpora = {}
    for name in ("train", "test"):
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"{name}.c"
        source.write_text(SMALL[name])
        compile_c(source, source.with_suffix(".bc"))
        corpora[name] = Corpus.from_sources(source.with_suffix(".bc"))
    return corpora

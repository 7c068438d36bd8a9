"""The programs to compile: small ones from this folder, or real ones that pip fetches from PyPI."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from shmbridge.training import Corpus, Module

# name: (sdist, its sources, flags, held out?). Each program is linked as a shared library.
DCONV = "src/ujson/deps/double-conversion/double-conversion"
CMARK = "third_party/cmark"
REAL = {
    "zopfli": ("zopfli==0.4.3", "zopfli/src/zopfli/*.c", [], False),
    "double-conversion": ("ujson==6.1.0", f"{DCONV}/*.cc", ["-lstdc++"], False),
    "cmark": (
        "cmarkgfm==2025.10.22",
        f"{CMARK}/src/*.c",
        [f"-I{CMARK}/src", f"-I{CMARK}/extensions", "-Igenerated/unix"],
        False,
    ),
    "lz4": ("lz4==4.4.5", "lz4libs/*.c", [], False),
    "picosat": ("pycosat==0.6.6", "picosat.c", [], True),
    "lodepng": ("zopfli==0.4.3", "zopfli/src/zopflipng/lodepng/*.cpp", ["-lstdc++"], True),
    "brotli": ("brotli==1.2.1", "c/[cde]*/*.c", ["-Ic/include"], True),
    "quickjs": (
        "quickjs==1.19.4",
        "upstream-quickjs/*.c",
        ["-D_GNU_SOURCE", "-DCONFIG_BIGNUM", '-DCONFIG_VERSION="1"', "-lm"],
        True,
    ),
}
OURS = {
    "text": ("text*.c", False),
    "matrix": ("matrix*.c", False),
    "table": ("table*.c", True),
}


def real(folder: Path) -> tuple[Corpus, Corpus]:
    """The training files and the held-out programs, fetched into `folder` if missing."""
    programs = {}
    for name, (sdist, sources, flags, held_out) in REAL.items():
        root = _fetched(folder, sdist)
        # -I starts in the sdist's folder, since compilers run in their own work folders.
        flags = [f"-I{root}/{flag[2:]}" if flag.startswith("-I") else flag for flag in flags]
        programs[name] = (sorted(root.glob(sources)), ["-w", *flags], held_out)
    return _corpora(programs)


def ours(folder: Path) -> tuple[Corpus, Corpus]:
    """The same of this folder's tiny programs."""
    programs = {
        name: (sorted(folder.glob(sources)), list[str](), held_out)
        for name, (sources, held_out) in OURS.items()
    }
    return _corpora(programs)


def _corpora(programs: dict[str, tuple[list[Path], list[str], bool]]) -> tuple[Corpus, Corpus]:
    train, held_out = [], []
    for name, (sources, flags, out) in programs.items():
        if out:  # one module, as one command compiles and links it
            rest = [str(path) for path in sources[1:]]
            held_out.append(Module(name, sources[0], (*rest, *flags)))
        else:
            compiling = tuple(flag for flag in flags if not flag.startswith("-l"))
            train += [Module(f"{name}/{path.name}", path, compiling) for path in sources]
    return Corpus(train), Corpus(held_out)


def _fetched(folder: Path, sdist: str) -> Path:
    to = folder / sdist.replace("==", "-")
    if not to.exists():
        print(f"fetching {sdist} from PyPI", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "-d", folder, sdist], check=True)
        with tarfile.open(next(folder.glob(f"{to.name}.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
    return to

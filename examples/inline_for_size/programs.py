"""The programs to compile: z3's C++ files as bitcode, split by directory, and other C++ programs.
pip fetches them from PyPI."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared

from shmbridge.training import Corpus, Module

# As libz3 is built, and so that a linker can remove each function that nobody uses.
CLANG = (
    "clang-22 -Oz -fPIC -fvisibility-inlines-hidden -ffunction-sections -fdata-sections "
    "-DNDEBUG -std=c++20 -w"
)
Z3 = "z3-solver==5.4.1.0"
SMALL = 12_000  # bytes of a source: larger ones take long to compile and ask too much
# Which eighths of the directories, by their hashes.
PARTS = {"test": (0, 1), "validation": (2,), "train": (3, 4, 5, 6, 7)}
MOST = 220  # files of a part
# name: (sdist, its sources, flags). Each is linked as a shared library.
DCONV = "src/ujson/deps/double-conversion/double-conversion"
HELD_OUT = {
    "double-conversion": ("ujson==6.1.0", f"{DCONV}/*.cc", []),
    "lodepng": ("zopfli==0.4.3", "zopfli/src/zopflipng/lodepng/*.cpp", []),
    "marisa": (
        "marisa-trie==1.4.1",
        "marisa-trie/lib/marisa/**/*.cc",
        ["-Imarisa-trie/include", "-Imarisa-trie/lib"],
    ),
    "jsonnet": (
        "jsonnet==0.22.0",
        "core/[!du]*[!t].cpp",  # desugarer needs a generated file
        [
            "-Iinclude",
            "-Icpp",
            "-Ithird_party/md5",
            "-Ithird_party/json",
            "-Ithird_party/rapidyaml",
        ],
    ),
}


def z3(folder: Path) -> dict[str, Corpus]:
    """z3's modules by their part, as bitcode."""
    root = shared.fetch(Z3, folder) / "core" / "src"
    sources = [path for path in root.rglob("*.cpp") if path.stat().st_size < SMALL]
    # api needs generated files; test has unit tests, and shell the program's main function.
    skipped = [root / name for name in ("api", "test", "shell")]
    sources = sorted(path for path in sources if not any(map(path.is_relative_to, skipped)))
    files = Corpus.from_sources(*sources)
    files = sorted(files, key=lambda module: _hash(module.name))
    chosen = {
        part: [m for m in files if _hash(str(Path(m.name).parent)) % 8 in eighths][:MOST]
        for part, eighths in PARTS.items()
    }
    bitcode = Corpus(sum(chosen.values(), [])).to_bitcode(
        folder / "z3", f"{CLANG} -D_MP_INTERNAL -I{root}"
    )
    names = {module.name for module in bitcode}
    return {
        part: Corpus(bitcode[module.name] for module in modules if module.name in names)
        for part, modules in chosen.items()
    }


def tiny(sources: Path, folder: Path) -> dict[str, Corpus]:
    """The same of small programs, to try the example."""
    files = Corpus.from_sources(*sorted(sources.glob("*.c")))
    bitcode = files.to_bitcode(folder / "tiny", CLANG.replace("-std=c++20", ""))
    parts = {
        part: [m for m in bitcode if (m.name[:5] == "table") == out]
        for part, out in (("train", False), ("test", True))
    }
    return {part: Corpus(modules) for part, modules in parts.items()}


def held_out(folder: Path) -> Corpus:
    """The other programs. One command compiles and links each."""
    modules = []
    for name, (sdist, sources, flags) in HELD_OUT.items():
        root = shared.fetch(sdist, folder)
        first, *rest = sorted(map(str, root.glob(sources)))
        # -I starts in the sdist's folder, since compilers run in their own work folders.
        words = [f"-I{root}/{flag[2:]}" for flag in flags]
        modules.append(Module(name, Path(first), (*rest, *words)))
    return Corpus(modules)


def _hash(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)

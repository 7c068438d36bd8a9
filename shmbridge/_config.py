"""Where the C library is installed, for `shmbridge config`."""

import shlex
from pathlib import Path

from shmbridge import _native


def prefix() -> Path:
    """The directory of include/ and lib/.

    It is the extension's: next to the package's Python files in a wheel, elsewhere in an editable
    install.
    """
    return Path(_native.__file__).parent


def cflags() -> str:
    """Compiler flags, quoted for a shell."""
    return shlex.join([f"-I{prefix() / 'include'}"])


def libs() -> str:
    """Linker flags, quoted for a shell, with an rpath, so that the program starts."""
    lib = prefix() / "lib"
    return shlex.join([f"-L{lib}", f"-Wl,-rpath,{lib}", f"-l:{library().name}"])


def examples() -> Path:
    """The directory of the example compilers' sources, examples/ of the source tree."""
    return prefix() / "examples"


def library() -> Path:
    """The C library, to load or to link. A wheel has no link libshmbridge.so to it."""
    (file,) = (prefix() / "lib").glob("libshmbridge.so.*")
    return file


def preload() -> Path:
    """The library that LD_PRELOAD puts into an unmodified compiler."""
    return prefix() / "lib" / "libshmbridge-preload.so"

"""Where the C library lies, for those who build against it: what `shmbridge config` prints."""

import shlex
from importlib.util import find_spec
from pathlib import Path


def prefix() -> Path:
    """The directory that holds include/ and lib/.

    It is the extension's: beside the package's Python files in a wheel, elsewhere in an editable install.
    Raises FileNotFoundError where the package was not built.
    """
    spec = find_spec("shmbridge._native")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "expected the built extension shmbridge._native, found none: run pip install on shmbridge"
        )
    return Path(spec.origin).parent


def cflags() -> str:
    """Compiler flags, quoted for a shell."""
    return shlex.join([f"-I{prefix() / 'include'}"])


def libs() -> str:
    """Linker flags, quoted for a shell. They hold an rpath, so that what links also starts."""
    lib = prefix() / "lib"
    return shlex.join([f"-L{lib}", f"-Wl,-rpath,{lib}", "-lshmbridge"])


def cmakedir() -> Path:
    """The directory of shmbridge-config.cmake: `cmake -Dshmbridge_DIR=…`."""
    return prefix() / "lib" / "cmake" / "shmbridge"


def pkgconfigdir() -> Path:
    """The directory of shmbridge.pc: `PKG_CONFIG_PATH=…`."""
    return prefix() / "lib" / "pkgconfig"


def examples() -> Path:
    """The directory of the example compilers' sources, examples/ of the source tree."""
    return prefix() / "examples"


def preload() -> Path:
    """The library that LD_PRELOAD puts into an unmodified compiler."""
    return prefix() / "lib" / "libshmbridge-preload.so"


def embedding() -> Path:
    """The library with which C programs run this Python in their own process, once `shmbridge embed` has made it."""
    return prefix() / "lib" / "libshmbridge-python.so"

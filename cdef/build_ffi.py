"""Generates the cffi extension's C source: build_ffi.py OUTPUT.c

The declarations are the files that the C compiler reads too: nothing is declared twice.
"""

import sys
from pathlib import Path

import cffi

CDEF = Path(__file__).parent


def build(output: str) -> None:
    """Writes the source of shmbridge._native to the file `output`."""
    ffi = cffi.FFI()
    ffi.cdef("typedef struct shmb_runner shmb_runner;")
    ffi.cdef((CDEF / "include/shmbridge.cdef").read_text())
    ffi.cdef((CDEF / "src/host.cdef").read_text())
    ffi.set_source("shmbridge._native", '#include "shmbridge.h"\n#include "host.h"\n')
    ffi.emit_c_code(output)


if __name__ == "__main__":
    build(sys.argv[1])

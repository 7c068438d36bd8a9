"""Generates the cffi extension's C source: build_ffi.py OUTPUT.c

The declarations are the files that the C compiler reads too: nothing is declared twice.
"""

import sys
from pathlib import Path

import cffi

CDEF = Path(__file__).parent
# Python plug-ins: shmbridge/serdes/_register.py and shmbridge/runners/_register.py.
CALLBACKS = """
extern "Python" {
    shmb_status shmb_python_encode(void *, shmb_side, const shmb_tensor *, int64_t, shmb_dtype, shmb_sink *);
    shmb_status shmb_python_decode(void *, shmb_side, const void *, size_t, shmb_dtype, shmb_sink *);
    shmb_status shmb_python_open(void *, const char *, const shmb_options *, void **, shmb_sink *);
    shmb_status shmb_python_evaluate(void *, const shmb_tensor *, int64_t, shmb_dtype, double, shmb_sink *);
    void shmb_python_close(void *);
}
"""


def build(output: str) -> None:
    """Writes the source of shmbridge._native to the file `output`."""
    ffi = cffi.FFI()
    ffi.cdef("typedef struct shmb_runner shmb_runner;")
    ffi.cdef((CDEF / "include/shmbridge.cdef").read_text())
    ffi.cdef((CDEF / "src/host.cdef").read_text())
    ffi.cdef(CALLBACKS)
    ffi.set_source("shmbridge._native", '#include "shmbridge.h"\n#include "host.h"\n')
    ffi.emit_c_code(output)


if __name__ == "__main__":
    build(sys.argv[1])

"""Generates the cffi extension's C source: build_ffi.py OUTPUT.c

The declarations are the headers that the C compiler reads too: nothing is declared twice.
"""

import re
import sys
from pathlib import Path

import cffi

CDEF = Path(__file__).parents[1]
# What Python calls beside the C API: cffi reads these headers, too.
HEADERS = [
    "segment/limits.h",
    "segment/names.h",
    "segment/peer.h",
    "segment/inspect.h",
    "host/host.h",
    "runner/nonblocking.h",
    "runner/embedded.h",
    "runner/serve.h",
    "message/convert.h",
    "serdes/codec.h",
    "runner/conversation_info.h",
    "pipe/pipe_server.h",
    "command/compilers.h",
    "command/build.h",
    "command/child.h",
    "command/run.h",
    "environment/drive.h",
]
# Python plug-ins: shmbridge/serdes/_register.py and shmbridge/runners/_register.py; a runner's log;
# environments: shmbridge/rl.py; C programs: shmbridge/_embedding.py.
CALLBACKS = """
void free(void *);
extern "Python" {
    shmb_status shmb_python_encode(void *, shmb_side, const shmb_tensor *, int64_t, shmb_dtype,
                                   shmb_sink *);
    shmb_status shmb_python_decode(void *, shmb_side, const void *, size_t, shmb_dtype,
                                   shmb_sink *);
    shmb_status shmb_python_open(void *, const char *, const shmb_options *, void **, shmb_sink *);
    shmb_status shmb_python_evaluate(void *, const shmb_tensor *, int64_t, shmb_dtype, double,
                                     shmb_sink *);
    void shmb_python_close(void *);
    shmb_status shmb_python_resolve(struct shmb_embedding *, char *, size_t);
    void shmb_python_log(void *, const char *);
    shmb_status shmb_python_reset(void *, shmb_episode *);
    shmb_status shmb_python_step(void *, shmb_episode *, const shmb_action *);
    shmb_status shmb_python_on_error(void *, shmb_episode *, shmb_status, const char *,
                                     shmb_action *);
    shmb_status shmb_python_ask(void *, shmb_runner *);
}
"""


def declarations(header: Path) -> str:
    """A header without what cffi cannot read: C++'s part, inline functions, preprocessor lines."""
    text = re.sub(
        r"^(#ifdef __cplusplus\n.*?^#endif|static inline [^;{]*\{\n.*?^\})\n",
        "",
        header.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)


def headers() -> list[Path]:
    """What Python reads: the public headers, then those of the core."""
    include = CDEF / "include"
    public = [include / "shmbridge.h", *sorted(include.glob("shmbridge/*.h"))]
    return [*public, *(CDEF / "src" / name for name in HEADERS)]


def build(output: str) -> None:
    """Writes the source of shmbridge._native to the file `output`."""
    ffi = cffi.FFI()
    for header in headers():
        ffi.cdef(declarations(header))
    ffi.cdef(CALLBACKS)
    # cffi calls alloca; Python.h of the limited API includes no stdlib.h
    includes = ["#include <stdlib.h>\n", *(f'#include "{header}"\n' for header in headers())]
    ffi.set_source("shmbridge._native", "".join(includes))
    ffi.emit_c_code(output)


if __name__ == "__main__":
    build(sys.argv[1])

"""Builds libshmbridge-python.so for this Python, for `shmbridge embed`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import cffi

import shmbridge
from shmbridge import _config
from shmbridge._compile.wrap import c_string
from shmbridge.errors import SystemCallError, UnsupportedError

NAME = _config.embedding().name
BY_HAND = {"shmb_open", "shmb_close", "shmb_interrupt", "shmb_version"}  # in start.c
COMPILER = ["-D_GNU_SOURCE", "-O2", "-w", "-fPIC", "-shared", "-pthread"]
LINKER = ["-Wl,-Bsymbolic-functions", "-Wl,-z,nodelete", "-Wl,--no-as-needed", "-ldl"]
VARIABLES = (
    "extern const char *const names[]; extern const size_t name_count; extern void **const table; "
    "extern char why[512];"
)
RESOLVE = "int shmb_python_resolve(const char *url, char *text, size_t room);"
INIT = """
from _shmbridge_python import ffi, lib
try:
    import shmbridge
    if shmbridge.__version__ != {version!r}:
        raise ImportError("the package shmbridge is " + shmbridge.__version__
                          + ", this library was built for {version}: run shmbridge embed again")
    from shmbridge._embedding.inside import begin
    begin(ffi, lib)
except BaseException as error:
    text = ({executable!r} + " started, but: " + str(error)).encode(errors="replace")[:511]
    lib.why[0 : len(text)] = text
"""


def declared() -> list[tuple[str, str, str]]:
    """The functions of the public headers, in their order: result, name, parameters."""
    text = "".join(header.read_text() for header in _config.headers())
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.findall(r"^([a-z][\w *]*?)\b(shmb_\w+)\(([^()]*)\);", text, re.MULTILINE)


def _forwarders() -> tuple[str, str]:
    """C code: the table of the core's functions, before start.c; and the functions that forward to
    it, behind."""
    members, names, functions = [], [], []
    for result, name, parameters in declared():
        members.append(f"    __typeof__({name}) *{name};\n")
        names.append(f'"{name}"')
        arguments = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters.removesuffix("void")))
        call = f"core.{name}({arguments})"
        if name in BY_HAND:
            continue
        if name == "shmb_send":
            body = f"shmb_ticket t = 0; if (!enter()) {{ t = {call}; leave(); }} return t;"
        elif name.startswith(("shmb_evaluate", "shmb_receive")):
            body = f"shmb_status s = enter(); if (!s) {{ s = {call}; leave(); }} return s;"
        elif result.strip() == "void":
            body = f"if (ready()) {call};"
        else:
            nothing = {"shmb_status": "SHMB_SYSTEM", "const char *": "why"}.get(result.strip(), "0")
            body = f"return ready() ? {call} : {nothing};"
        functions.append(f"{result}{name}({parameters}) {{ {body} }}\n")
    table = (
        f"static struct {{\n{''.join(members)}}} core;\n"
        f"static const char *const names[] = {{{', '.join(names)}}};\nstatic const size_t "
        f"name_count = {len(names)};\n"
        "static void **const table = (void **)&core;\n"
    )
    return table, "".join(functions)


def generate(output: Path, version: str, executable: str) -> None:
    """Writes the library's C source."""
    table, functions = _forwarders()
    defined = {"VERSION": version, "EXECUTABLE": executable, "LIBRARY": str(_config.library())}
    defines = "".join(f"#define {name} {c_string(text)}\n" for name, text in defined.items())
    start = (Path(__file__).parent / "start.c").read_text()
    ffi = cffi.FFI()
    ffi.cdef(VARIABLES)
    ffi.embedding_api(RESOLVE)
    ffi.embedding_init_code(INIT.format(version=version, executable=executable))
    includes = "".join(f'#include "{header}"\n' for header in _config.headers())
    ffi.set_source("_shmbridge_python", f"{includes}{defines}{RESOLVE}\n{table}{start}{functions}")
    with redirect_stdout(StringIO()):  # it says what it does
        ffi.emit_c_code(str(output))


def _python_flags() -> list[str]:
    """How to compile and link with Python. UnsupportedError: its headers are not there, or it has
    no shared library."""
    headers = sysconfig.get_config_var("INCLUDEPY")
    if not (Path(headers) / "Python.h").exists():
        raise UnsupportedError(
            f"expected Python.h of {sys.executable} in {headers}, found none: install Python's "
            "headers (Debian, Ubuntu: apt-get install python3-dev; Fedora: dnf install "
            "python3-devel)"
        )
    folder, name = sysconfig.get_config_var("LIBDIR"), str(sysconfig.get_config_var("LDLIBRARY"))
    for place in filter(None, [folder, sysconfig.get_config_var("LIBPL")]):
        library = Path(place) / name
        if ".so" in name and library.exists():
            return [f"-I{headers}", str(library), f"-Wl,-rpath,{folder}"]
    raise UnsupportedError(
        f"{sys.executable} has no shared library, which a C program needs to hold it: expected "
        f"{folder}/libpython*.so, found {name}: "
        "install it (Debian, Ubuntu: apt-get install libpython3-dev; pyenv: "
        "PYTHON_CONFIGURE_OPTS=--enable-shared; conda and uv have it)"
    )


def build(
    output: Path | None = None,
    version: str = shmbridge.__version__,
    executable: str = sys.executable,
) -> Path:
    """Generates and compiles the library, with $CC or cc; returns its path. output: None: next to
    libshmbridge.so in the installed package. version, executable: checked when it starts. Errors:
    UnsupportedError (no shared libpython, no headers, no compiler), SystemCallError (it does not
    compile, or the place is not writable)."""
    output = _config.embedding() if output is None else output
    python = _python_flags()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or not shutil.which(compiler[0]):
        raise UnsupportedError(
            f"expected a C compiler, found no {' '.join(compiler) or 'name in $CC'}: install one, "
            "or set $CC"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "python.c", Path(folder) / NAME
        generate(source, version, executable)
        script = f"-Wl,--version-script={_config.version_script()}"
        linker = [f"-Wl,-soname,{NAME}", script, *LINKER]
        flags = [*COMPILER, *shlex.split(_config.cflags())]
        command = [*compiler, *flags, str(source), *linker, *python, "-o", str(made)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise SystemCallError(
                f"{NAME} does not compile: {shlex.join(compiler)} says: "
                f"{run.stderr.strip()[-2000:]}"
            )
        try:
            staged = output.with_name(f"{output.name}.{os.getpid()}")
            shutil.copy(made, staged)
            staged.replace(output)  # programs that run keep the old one
        except OSError as error:
            raise SystemCallError(
                f"{output}: {error.strerror}: choose a place with -o FILE, and set "
                "$SHMBRIDGE_PYTHON_LIBRARY to it"
            ) from error
    return output

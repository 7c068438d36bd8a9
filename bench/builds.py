"""Programs in C and C++: with the core of a checkout, with the installed library, and with gRPC."""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.program import BENCH, ROOT, SHMBRIDGE

PROGRAMS = (["bare"], ["runner"], ["host"], ["turns"], ["count"])


def build(directory: Path, programs: Sequence[Sequence[str]] = PROGRAMS, tree: Path = ROOT) -> None:
    """The core, optimised across files as the shared library is, and programs: the C files of each;
    the first one names it."""
    options = ["-DCMAKE_C_COMPILER=cc", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"]
    for step in (
        ["-S", tree / "cdef", "-B", directory, *options],
        ["--build", directory, "--target", "shmbridge_static"],
    ):
        subprocess.run(["cmake", *step], check=True, stdout=subprocess.DEVNULL)
    include = [f"-I{tree / folder}" for folder in ("cdef/include", "cdef/src", "tests/c")]
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    cc = ["cc", "-std=c11", "-O3", "-flto=auto", "-D_GNU_SOURCE", *warnings, *include]
    libraries = [directory / "libshmbridge.a", "-pthread", "-ldl", "-o"]
    for names in programs:
        files = [next(BENCH.glob(f"*/{name}.c")) for name in names]
        subprocess.run([*cc, *files, *libraries, directory / names[0]], check=True)


def build_grpc(folder: Path, program: str) -> None:
    """compilation_grpc_host, and PROGRAM_grpc, which PROGRAM.c and compilation_grpc.cpp are. Errors:
    FileNotFoundError, subprocess.CalledProcessError."""
    plugin = shutil.which("grpc_cpp_plugin")
    if plugin is None:
        raise FileNotFoundError("needs Debian's libgrpc++-dev and protobuf-compiler-grpc")
    here, near = BENCH / "compilers", BENCH / "transport"
    # the protoc of that package: another one's C++ may not match the system's headers
    protoc = [Path(plugin).with_name("protoc"), f"-I{here}", here / "compilation.proto"]
    to = [f"--cpp_out={folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"]
    subprocess.run([*protoc, *to, f"--descriptor_set_out={folder / 'descriptors'}"], check=True)
    flags = ["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"]
    libraries = subprocess.check_output(flags, text=True).split()
    cxx = ["c++", "-std=c++17", "-O2", f"-I{folder}", f"-I{here}", f"-I{near}"]
    part = folder / f"{program}.o"
    source = next(BENCH.glob(f"*/{program}.c"))
    subprocess.run(["cc", "-O3", "-D_GNU_SOURCE", "-c", source, "-o", part], check=True)
    messages = [folder / f"compilation.{kind}.cc" for kind in ("pb", "grpc.pb")]
    host = [here / "compilation_grpc_host.cpp", *messages, *libraries]
    client = [here / "compilation_grpc.cpp", part, *messages, *libraries]
    subprocess.run([*cxx, *host, "-o", folder / "compilation_grpc_host"], check=True)
    subprocess.run([*cxx, *client, "-o", folder / f"{program}_grpc"], check=True)


def compiled(source: Path, to: Path, *flags: str) -> Path:
    """A program in C or C++ with the installed library."""
    compiler = ["cc", "-std=c11"] if source.suffix == ".c" else ["c++", "-std=c++17"]
    library = subprocess.check_output([SHMBRIDGE, "config", "--cflags", "--libs"], text=True)
    words = [*compiler, "-O2", *flags, source, *shlex.split(library), "-o", to]
    subprocess.run(words, check=True)
    return to

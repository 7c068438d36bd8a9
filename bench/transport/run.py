"""Every figure about speed, measured in one run: python bench run [--quick] [--only ROWS]
[--json FILE]."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import program
import rows
from pairs import Place
from program import BENCH, ROOT

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


def first_line(command: Sequence[str | Path]) -> str:
    """Of what the command prints; "" without the command."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:
    """What the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1] for line in cpuinfo.splitlines() if "model name" in line]
    versions = {}
    for package in ("shmbridge", "numpy", "onnxruntime", *packages):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    busy, since = program.busy_seconds(), time.monotonic()
    time.sleep(1)
    load = (program.busy_seconds() - busy) / (time.monotonic() - since)
    commit = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": first_line(commit),
        "cpu": names[0].strip() if names else platform.machine(),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in cpuinfo,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "compiler": first_line(["cc", "--version"]),
        "clang": first_line(["clang-22", "--version"]),
        "load": load,
        **versions,
    }


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test of all rows, in seconds")
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(rows.ROWS)}")
    parser.add_argument("--minutes", type=float, default=5, help="about how long (default 5)")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # also continues and ends stopped processes
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("two cores are needed, but this process may use only one", file=sys.stderr)
        return 1
    chosen = options.only.split(",") if options.only else list(rows.ROWS)
    unknown = set(chosen) - rows.ROWS.keys()
    if unknown:
        parser.error(
            f"--only: expected some of {', '.join(rows.ROWS)}; found {', '.join(sorted(unknown))}"
        )
    effort = 0.0 if options.quick else options.minutes / 5
    results: dict[str, Any] = {"machine": machine()}
    for name, value in results["machine"].items():
        print(f"{name:12} {value}")
    with tempfile.TemporaryDirectory() as directory:
        build(Path(directory))
        place = Place(Path(directory), cores[0], cores[1])
        for name in chosen:
            print(f"\n== {name}: {(rows.ROWS[name].__doc__ or '').strip()}", flush=True)
            results[name] = rows.ROWS[name](place, effort)
    program.write(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

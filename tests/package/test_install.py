"""What `pip install` and `cmake --install` leave behind: it is complete, exports no more than it
should, and links."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import build.util
import pytest

ROOT = Path(__file__).parents[2]
CDEF = ROOT / "cdef"
HEADERS = [CDEF / "include/shmbridge.h", *(CDEF / "include/shmbridge").glob("*.h")]
VERSION = ".".join(re.findall(r"#define SHMB_VERSION_\w+ (\d+)", HEADERS[0].read_text()))
PROGRAM = """
#include <shmbridge.h>
#include <stdio.h>
int main(void) { puts(shmb_version()); return 0; }
"""

SONAME = f"libshmbridge.so.{VERSION.rpartition('.')[0]}"

# What is compared or looked at is the same without optimisation, which takes half of a build.
QUICKLY = {
    "CFLAGS": "-DNDEBUG",
    "SKBUILD_CMAKE_BUILD_TYPE": "None",
    "SOURCE_DATE_EPOCH": "31536000",
}
DEBUG = "-DCMAKE_BUILD_TYPE=Debug"

pytestmark = pytest.mark.slow


def run(*command, check=True, **environment):
    """What the command prints, errors included; fails with that text when the command fails."""
    env = {**os.environ, **environment}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert not check or done.returncode == 0, f"{shlex.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


def needs(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="session")
def cached(tmp_path_factory):
    """The environment of debug builds, which compile the same files: each once, with ccache."""
    if not shutil.which("ccache"):
        return {}
    folder = str(tmp_path_factory.mktemp("ccache"))
    launcher = {"CC": "cc", "CMAKE_C_COMPILER_LAUNCHER": "ccache"}
    return {**launcher, "CCACHE_DIR": folder, "CCACHE_NOHASHDIR": "1"}


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    """Made as a release is: next to it lies the wheel that was made from it alone."""
    where = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "-o", where, ROOT, **QUICKLY)
    (sdist,) = where.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="session")
def wheel(sdist):
    (wheel,) = sdist.parent.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The directory that holds the installed package; its path has a space."""
    where = tmp_path_factory.mktemp("some where")
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", where, wheel)
    return where


@pytest.fixture(scope="session")
def editable(cached, tmp_path_factory):
    """The bin directory of an environment with an editable install."""
    where = tmp_path_factory.mktemp("editable") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", where)
    (site,) = where.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", where / "bin/python"]
    debug = {**cached, "SKBUILD_CMAKE_BUILD_TYPE": "Debug"}
    run(*pip, "install", "-q", "--no-deps", "--no-build-isolation", "-e", ROOT, **debug)
    return where / "bin"


@pytest.fixture(scope="session")
def prefix(cached, tmp_path_factory):
    """Where `cmake -S cdef` has installed the C library, without Python."""
    needs("cmake")
    where = tmp_path_factory.mktemp("c library")
    run("cmake", "-S", CDEF, "-B", where / "build", DEBUG, **cached)
    run("cmake", "--build", where / "build", "--parallel", "2", **cached)
    run("cmake", "--install", where / "build", "--prefix", where / "prefix")
    return where / "prefix"


@pytest.fixture
def program(tmp_path):
    """The source of a program that prints the library's version."""
    (tmp_path / "program.c").write_text(PROGRAM)
    return tmp_path / "program.c"


def exported(library):
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}


def declared():
    """The functions of the public headers."""
    text = re.sub(
        r"/\*.*?\*/", "", "".join(header.read_text() for header in HEADERS), flags=re.DOTALL
    )
    return set(re.findall(r"^(?!static)[a-z][^(;]*?(shmb_\w+)\(", text, flags=re.MULTILINE))


def with_flags(program, cflags, libs, **environment):
    """What the program prints, compiled and linked with these flags, quoted for a shell."""
    run("cc", *shlex.split(cflags), program, *shlex.split(libs), "-o", program.with_suffix(""))
    return run(program.with_suffix(""), **environment).strip()


def with_cmake(program, find, target, *options, **environment):
    """What the program prints, built by CMake, which finds the library by the line `find`."""
    needs("cmake")
    project = program.parent
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(client C)\n"
        f"{find}\nadd_executable(client program.c)\ntarget_link_libraries(client PRIVATE "
        f"{target})\n"
    )
    run("cmake", "-S", project, "-B", project / "build", *options, **environment)
    run("cmake", "--build", project / "build", "--target", "client", **environment)
    return run(project / "build/client").strip()


def test_the_sdist_holds_no_link(sdist):
    with tarfile.open(sdist) as archive:
        assert not [entry.name for entry in archive if entry.issym() or entry.islnk()]


def test_one_wheel_serves_every_python(wheel):
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("a free-threaded Python has no limited API")
    assert re.fullmatch(rf"shmbridge-{VERSION}-cp311-abi3-linux_\w+\.whl", wheel.name)


def test_the_wheel_holds_the_c_library_and_no_links(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = [str(file.relative_to(CDEF)) for file in CDEF.glob("include/**/*.h*")]
    wanted += ["py.typed", "lib/libshmbridge.a", "lib/pkgconfig/shmbridge.pc"]
    parts = ("config", "config-version", "targets")
    wanted += [f"lib/cmake/shmbridge/shmbridge-{part}.cmake" for part in parts]
    assert {f"shmbridge/{name}" for name in wanted} <= names
    assert not [name for name in names if not name.startswith(("shmbridge/", "shmbridge-"))]
    libraries = {name for name in names if ".so" in name and not name.endswith(".abi3.so")}
    assert libraries == {f"shmbridge/lib/{name}" for name in (SONAME, "libshmbridge-preload.so")}


def test_a_released_wheels_description_links_to_the_repository(tmp_path):
    """PyPI resolves no relative link."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "cdef/include/shmbridge.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with open(tmp_path / "pyproject.toml", "r+") as project:
        if "\n[project.urls]" not in project.read():
            project.write('[project.urls]\nRepository = "https://example.org/shmbridge"\n')
    run(sys.executable, ROOT / "release/readme.py", tmp_path, "v1")
    metadata = build.util.project_wheel_metadata(tmp_path, isolated=False)
    address = metadata["Project-URL"].removeprefix("Repository, ")
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]*)\)", metadata.get_payload())
    for picture, link in links:
        view = f"{address}/{'raw' if picture else 'blob'}/v1/"
        assert link.startswith(view) and (ROOT / link[len(view) :].partition("#")[0]).is_file()
    assert len(links) > 10


def test_a_second_build_is_the_same_wheel(wheel, tmp_path):
    """From the checkout, in another folder: byte for byte."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "-w", tmp_path, ROOT, **QUICKLY)
    (second,) = tmp_path.glob("*.whl")
    assert second.read_bytes() == wheel.read_bytes()


def test_auditwheel_passes_a_policy_no_newer_than_this_glibc(wheel, tmp_path):
    needs("auditwheel")
    needs("patchelf")
    minor = str(os.confstr("CS_GNU_LIBC_VERSION")).split(".")[1]
    shown = " ".join(run("auditwheel", "show", wheel).split())
    found = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_', shown)
    assert found and int(found[1]) <= int(minor), shown
    run("auditwheel", "repair", wheel, "-w", tmp_path)
    (repaired,) = tmp_path.glob("*.whl")
    assert "manylinux" in repaired.name
    with zipfile.ZipFile(repaired) as archive:
        assert not [name for name in archive.namelist() if ".libs/" in name], (
            "a library from outside had to be added"
        )


def test_the_shared_library_exports_the_declared_functions_and_nothing_else(installed):
    """With the version for which a program was linked, so that an older library says what it
    lacks."""
    node = f"SHMBRIDGE_{VERSION.rpartition('.')[0]}"
    versioned = {f"{name}@@{node}" for name in declared()}
    assert exported(installed / "shmbridge/lib" / SONAME) == versioned | {node}


def test_the_abi_keeps_what_was_released_and_grows_by_new_version_nodes(prefix):
    """An ABI that no release has yet is stored again: bash release/run abi."""
    needs("abidiff")
    if platform.machine() != "x86_64":
        pytest.skip("the stored ABI is that of x86-64")
    stored, (library,) = ROOT / "release/abi.xml", prefix.glob("lib*/**/libshmbridge.so")
    run("abidiff", "--no-added-syms", stored, library)
    symbols = re.findall(r"elf-symbol name='(\w+)' version='(\S+)'", stored.read_text())
    added = exported(library) - {"@@".join(symbol) for symbol in symbols}
    nodes = {node for _, node in symbols}
    assert not [symbol for symbol in added if symbol.partition("@@")[2] in nodes], (
        "each needs a new node in cdef/shmbridge.map"
    )


def test_the_shared_library_is_named_as_its_soname_and_needs_libc_alone(installed):
    dynamic = run("readelf", "-d", installed / "shmbridge/lib" / SONAME, LC_ALL="C")
    assert re.findall(r"soname: \[(.*)\]", dynamic) == [SONAME]
    assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) <= {"libc.so.6", "libpthread.so.0"}


def test_cmake_installs_the_library_and_a_link_to_link_by(prefix):
    (link,) = prefix.glob("lib*/**/libshmbridge.so")
    assert os.readlink(link) == SONAME and not link.resolve().is_symlink()


def test_cmake_installs_the_command_and_the_license(prefix, tmp_path):
    """Without Python the command still runs every compiler; those here print their command line."""
    moved = shutil.copytree(prefix, tmp_path / "moved")
    command = [moved / "bin/shmbridge", "run", "--llvm", "inline", "--connect", "nobody", "--"]
    for name in ("clang", "rustc"):
        compiler = shutil.copy("/bin/echo", tmp_path / name)
        assert "-c a.c" in run(*command, compiler, "-c", "a.c")
    assert (prefix / "share/doc/shmbridge/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_library_runs_no_code_when_it_is_loaded(prefix):
    sections = run("readelf", "-SW", *(prefix.glob("lib*/**/libshmbridge.a")), LC_ALL="C")
    assert not re.findall(r"\.(?:init_array|ctors|preinit_array)", sections)


def test_the_extension_exports_the_initialisers_of_its_modules_alone(installed):
    (file,) = (installed / "shmbridge").glob("*.so")
    assert exported(file) == {"PyInit__native", "PyInit__fastpath"}


def test_config_flags_build_a_program_that_starts(installed, program):
    cflags, libs = (
        run(installed / "bin/shmbridge", "config", what, PYTHONPATH=str(installed))
        for what in ("--cflags", "--libs")
    )
    assert with_flags(program, cflags, libs) == VERSION


def test_config_is_right_in_an_editable_install(editable, program):
    cflags, libs, cmakedir, prefix = (
        run(editable / "shmbridge", "config", what).strip()
        for what in ("--cflags", "--libs", "--cmakedir", "--prefix")
    )
    assert Path(prefix, "include/shmbridge.h").is_file()
    assert Path(cmakedir, "shmbridge-config.cmake").is_file()
    assert str(editable.parent) in prefix
    assert with_flags(program, cflags, libs) == VERSION
    where = run(editable / "python", "-c", "import shmbridge.errors as e; print(e.__file__)")
    assert Path(where.strip()).is_relative_to(ROOT)


def test_pkg_config_flags_build_a_program_without_an_rpath(installed, program):
    needs("pkg-config")
    path = {"PKG_CONFIG_PATH": str(installed / "shmbridge/lib/pkgconfig")}
    assert run("pkg-config", "--modversion", "shmbridge", **path).strip() == VERSION
    cflags, libs = (run("pkg-config", what, "shmbridge", **path) for what in ("--cflags", "--libs"))
    assert "rpath" not in libs
    folder = str(installed / "shmbridge/lib")
    assert with_flags(program, cflags, libs, LD_LIBRARY_PATH=folder) == VERSION


@pytest.mark.parametrize("target", ["shmbridge::shmbridge", "shmbridge::static"])
def test_find_package_finds_the_wheels_library(installed, program, target):
    cmakedir = run(
        installed / "bin/shmbridge", "config", "--cmakedir", PYTHONPATH=str(installed)
    ).strip()
    find = f"find_package(shmbridge {VERSION.rpartition('.')[0]} REQUIRED)"
    assert with_cmake(program, find, target, f"-Dshmbridge_DIR={cmakedir}") == VERSION


@pytest.mark.parametrize("target", ["shmbridge::shmbridge", "shmbridge::static"])
def test_find_package_finds_a_library_whose_prefix_has_moved(prefix, program, tmp_path, target):
    shutil.copytree(prefix, tmp_path / "moved")
    path = f"-DCMAKE_PREFIX_PATH={tmp_path / 'moved'}"
    found = with_cmake(program, "find_package(shmbridge REQUIRED)", target, path)
    assert found == VERSION
    cache = (tmp_path / "build/CMakeCache.txt").read_text()
    assert f"shmbridge_DIR:PATH={tmp_path / 'moved'}" in cache
    assert not [
        file for file in prefix.rglob("*.[cp]*") if str(prefix) in file.read_text(errors="ignore")
    ]


def test_find_package_refuses_another_version(prefix, program):
    find, path = "find_package(shmbridge 99 REQUIRED)", f"-DCMAKE_PREFIX_PATH={prefix}"
    with pytest.raises(AssertionError, match="shmbridge"):
        with_cmake(program, find, "shmbridge::static", path)


@pytest.mark.parametrize("target", ["shmbridge::shmbridge", "shmbridge::static"])
def test_add_subdirectory_takes_the_sources(cached, program, target):
    found = with_cmake(program, f'add_subdirectory("{CDEF}" shmbridge)', target, DEBUG, **cached)
    assert found == VERSION


def test_the_amalgamation_compiles(tmp_path):
    run(sys.executable, ROOT / "release/amalgamate.py", tmp_path)
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    run("cc", "-std=c11", *warnings, "-fsyntax-only", tmp_path / "shmbridge.c")


def test_with_musl_it_builds_asks_and_can_be_preloaded(tmp_path):
    needs("cmake")
    needs("musl-gcc")
    tests = ["test_host_closes", "test_preload_passes_through"]
    options = ["CMAKE_C_COMPILER=musl-gcc", "CMAKE_BUILD_TYPE=Debug"]
    options += ["SHMB_BUILD_TESTS=ON", "SHMB_WERROR=ON"]
    run("cmake", "-S", CDEF, "-B", tmp_path, *[f"-D{option}" for option in options])
    run("cmake", "--build", tmp_path, "--parallel", "2", "--target", "shmbridge", *tests)
    run("ctest", "--test-dir", tmp_path, "-R", f"^({'|'.join(tests)})$", "--output-on-failure")


@pytest.mark.parametrize(
    "options, message",
    [
        (["-DCMAKE_SYSTEM_NAME=FreeBSD"], "needs Linux"),
        (["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=riscv64"], "this is riscv64"),
        (["-DSKBUILD=2", "-DPython_INCLUDE_DIR=/nonexistent"], "python3-dev"),
    ],
    ids=["not Linux", "another architecture", "no Python.h"],
)
def test_where_it_cannot_be_built_cmake_says_why(tmp_path, options, message):
    needs("cmake")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    said = run("cmake", "-S", CDEF, "-B", tmp_path, python, *options, check=False)
    assert message in " ".join(said.split())
    assert "Configuring incomplete" in said

"""Bridges that leave nothing behind, runners in other processes, and a runner in C that does as it
is told."""

import contextlib
import gc
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support import reliability
from support.processes import SHM, Process, ScriptedRunner

pytest_plugins = ["conformance.table"]  # here, as only this file is read where pytest-xdist reports
CROSS = Path(__file__).parent / "cross"
# What C programs link, with its headers beside it, in place of the installed library.
OTHER_LIBRARY = os.environ.get("SHMBRIDGE_TEST_LIBRARY")
numbers = itertools.count()

# Who started us in the background, or by nohup, had us ignore these. What we start must not inherit
# that, as it does not inherit handlers.
for number, handler in [
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, lambda *_: None),
    (signal.SIGQUIT, signal.SIG_DFL),
]:
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

with contextlib.suppress(ModuleNotFoundError):  # beside Ray, there is no hypothesis
    from hypothesis import HealthCheck, settings

    # A busy machine is no failure.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="long runs: hours; stores what they count")
    parser.addoption("--minutes", type=float, default=60, help="of tests/kill/test_soak.py --long")


def pytest_collection_modifyitems(items):
    """Slow files first, so that none is left to one process at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish():
    """Tests collect garbage to see what is left; without the ten thousand tests themselves that
    takes no fifth of a second each."""
    gc.collect()
    gc.freeze()


# Coverage of Python doubles the time of what it counts. So the programs that tests start count only
# in these folders and files, and in marked tests; messages of conformance tests do not count.
PROGRAMS_COUNT = {"cli", "compile", "hosts", "remote", "runner", "tune"}
PROGRAMS_COUNT |= {"test_embedding", "test_misbehaving", "test_workers"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    folder, tracer = item.path.parent.name, sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        marked = item.get_closest_marker("programs_count")
        if not marked and PROGRAMS_COUNT.isdisjoint({folder, item.path.stem}):
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        if folder == "conformance":
            sys.settrace(None)
        try:
            return (yield)
        finally:
            sys.settrace(tracer)


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")


@pytest.fixture
def record(long, capsys):
    """record(name, **figures) prints what a test counted; --long adds it to what
    docs/reliability.md is made from."""

    def keep(name, **figures):
        with capsys.disabled():
            print(f"\n{name}: {json.dumps(figures)}")
        if long:
            reliability.record(name, **figures)

    return keep


# ---- /dev/shm is left as it was found ----


@pytest.fixture(scope="session")
def new_name():
    """Makes names of bridges that nobody else has."""
    return lambda: f"test-{os.getpid()}-{next(numbers)}"


def files_of(names):
    return {path.name for path in SHM.glob("shmb.*") if path.name[5:].partition("~")[0] in names}


def _expect_none(left):
    until = time.monotonic() + 30  # processes that were killed just now
    while left() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.02)
    assert left() == set()


@pytest.fixture
def nothing_is_left():
    """No file or bridge of `shmbridge run`."""

    def files():
        return {
            *Path(tempfile.gettempdir()).glob("shmbridge-*"),
            *Path("/dev/shm").glob("shmb.run-*"),
        }

    before = files()
    yield
    _expect_none(lambda: files() - before)


@pytest.fixture
def no_bridges():
    """What killed hosts leave is removed at the end, as `shmbridge gc` does."""
    yield
    from shmbridge._bridge import segment

    segment.gc()


@pytest.fixture
def name(new_name):
    """The name of a bridge whose files are gone when the test ends."""
    chosen = new_name()
    yield chosen
    gc.collect()
    _expect_none(lambda: files_of({chosen}))


@pytest.fixture
def shm_files(name):
    """The names of the files that the test's bridge has in /dev/shm just now."""
    return lambda: files_of({name})


# ---- The other side ----


@pytest.fixture
def serve(name):
    """serve(model, **options): a host of that name, its loop in a thread, until the with block
    ends."""
    from shmbridge import Host

    @contextlib.contextmanager
    def serving(model, *, max_batch=1, max_wait=50e-6, **options):
        with Host(name, **options) as host:
            thread = threading.Thread(
                target=host.serve,
                args=(model,),
                kwargs={"max_batch": max_batch, "max_wait": max_wait},
            )
            thread.start()
            try:
                yield host
            finally:
                host.close()
                thread.join()

    return serving


def echo_model(request):
    """The advice is the features."""
    return dict(request)


@pytest.fixture(scope="session")
def echo():
    return echo_model


@pytest.fixture
def in_thread():
    """in_thread(function, *args): runs it beside the test; .result() joins and gives what it
    returned or raised."""
    started = []

    class Call(threading.Thread):
        def __init__(self, function, args):
            super().__init__(daemon=True)
            self.call, self.outcome, self.error = (function, args), None, None
            started.append(self)
            self.start()

        def run(self):
            function, args = self.call
            try:
                self.outcome = function(*args)
            except BaseException as error:
                self.error = error
            self.call = None

        def result(self):
            self.join(60)
            assert not self.is_alive(), "the thread hangs"
            error, self.error = self.error, None
            if error is not None:
                raise error
            return self.outcome

    yield lambda function, *args: Call(function, args)
    for call in started:
        call.join(10)


@pytest.fixture
def python(tmp_path):
    """python(code, *args): starts a Process, which is killed when the test ends."""
    started = []

    def start(code, *args, **options):
        started.append(Process(code, args, **{"cwd": tmp_path, **options}))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


COMPILERS = {
    ".c": (("cc", "gcc", "clang"), "-std=c11"),
    ".cpp": (("c++", "g++", "clang++"), "-std=c++17"),
}


@pytest.fixture(scope="session")
def build_environment(request):
    """Variables with which CMake builds the package and compilers' plug-ins: a cache keeps what was
    compiled, and clang reads LLVM's headers in two thirds of g++'s time."""
    variables = {"CXX": "clang++-22"} if shutil.which("clang++-22") else {}
    if shutil.which("ccache"):
        variables |= {
            "CMAKE_C_COMPILER_LAUNCHER": "ccache",
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CCACHE_DIR": str(request.config.cache.mkdir("ccache")),
            "CCACHE_BASEDIR": tempfile.gettempdir(),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_DEPEND": "1",
        }
    return variables


@pytest.fixture(scope="session")
def embedding(tmp_path_factory):
    """What `shmbridge embed` writes for this Python; C programs find it by $SHMBRIDGE_PYTHON."""
    from shmbridge import UnsupportedError
    from shmbridge._embedding import write

    try:
        return write(tmp_path_factory.mktemp("embedding") / "embedded-python")
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def c_program(tmp_path_factory):
    """c_program(source, library=None): compiles C or C++ against the installed library, or another
    one; the program's path."""
    from shmbridge import _config

    def build(source, library=None):
        names, standard = COMPILERS[source.suffix]
        compiler = next(filter(shutil.which, names), None)
        if compiler is None:
            pytest.skip(f"no compiler for {source.name}")
        program = tmp_path_factory.mktemp("c") / source.stem
        library = library or (Path(OTHER_LIBRARY) if OTHER_LIBRARY else None)
        flags = [*([f"-I{library.parent}"] if library else []), *shlex.split(_config.cflags())]
        flags += ["-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", standard]
        libs = [library, f"-Wl,-rpath,{library.parent}"] if library else shlex.split(_config.libs())
        subprocess.run([compiler, *flags, source, "-o", program, *libs, "-pthread"], check=True)
        return program

    return build


@pytest.fixture(scope="session")
def scripted_runner(c_program):
    return c_program(CROSS / "scripted_runner.c")


@pytest.fixture
def c_runner(scripted_runner):
    """c_runner(url=None): a ScriptedRunner, opened if there is a url, killed when the test ends."""
    started = []

    def start(url=None, **options):
        runner = ScriptedRunner(scripted_runner, **options)
        started.append(runner)
        if url is not None:
            answer = runner.do("open", url)
            assert answer.startswith("0"), answer
        return runner

    yield start
    for runner in started:
        runner.kill()
        runner.communicate()

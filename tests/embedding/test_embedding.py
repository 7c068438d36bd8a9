"""Python in a C program's process, which libshmbridge.so or libshmbridge.a starts."""

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
import venv
from pathlib import Path

import numpy as np
import pytest
from support.processes import ScriptedRunner, printed

from shmbridge import DeadlineError, UnsupportedError, __version__, _config
from shmbridge._embedding import write

TESTS = Path(__file__).parent.parent
SOURCE = TESTS / "cross" / "python_inside.c"
pytestmark = pytest.mark.timeout(120)

MODEL = """
import atexit, os, signal, sys, threading, time
import numpy as np

def double(features):
    assert features["x"].shape == (1000,) and (features["x"] == features["x"][0]).all()
    return 2 * float(features["x"][0])

def slow(features):
    time.sleep(0.001)
    return double(features)

def sleeps(features):
    os.kill(os.getpid(), signal.SIGUSR1)
    threading.Event().wait()

def spins(features):
    os.kill(os.getpid(), signal.SIGUSR1)
    while True:
        pass

def signals(features):
    os.kill(os.getpid(), signal.SIGUSR1)
    return double(features)

def where(features):
    print(sys.executable, sys.prefix, np.__file__, sep="\\n")
    return double(features)

def talks(features):
    global file
    print("said without a newline", end="")
    file = open(os.path.dirname(__file__) + "/kept", "w")
    file.write("text that nobody flushed")
    atexit.register(lambda: print("; atexit ran", end=""))
    return double(features)

def talks_and_sleeps(features):
    talks(features)
    return sleeps(features)

def talks_and_hangs(features):
    print("asleep", flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def url(tmp_path):
    """url("double"): that function of MODEL."""
    (tmp_path / "its_model.py").write_text(MODEL)
    return lambda function, **options: (
        f"python://its_model:{function}?path={tmp_path}"
        + "".join(f"&{k}={v}" for k, v in options.items())
    )


def linked(c_program, source):
    """The program with each of the libraries."""
    archive = _config.prefix() / "lib" / "libshmbridge.a"
    return {"shared": c_program(source), "static": c_program(source, archive)}


@pytest.fixture(scope="session")
def programs(c_program):
    return linked(c_program, SOURCE)


@pytest.fixture(params=["shared", "static"])
def run(request, programs, embedding):
    """run(*words, **environment): python_inside.c, in an environment that holds nothing else, in
    another directory."""

    def run(*words, status=0, **environment):
        environment = {"SHMBRIDGE_PYTHON": str(embedding), **environment}
        done = printed([programs[request.param], *words], env=environment, cwd="/")
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture(scope="session")
def runners(c_program):
    return linked(c_program, TESTS / "cross" / "scripted_runner.c")


# ---- It starts, wherever it is ----


def test_a_function_answers_in_an_empty_environment_and_another_directory(run, url):
    assert run("ask", url("where")).stdout.splitlines() == [sys.executable, sys.prefix, np.__file__]


def test_eight_threads_open_at_once_and_ask(run, url):
    run("threads", url("slow"), "8")


def test_signals_and_locale_stay_the_programs(run, url):
    run("untouched", url("double"))


@pytest.mark.parametrize("library", ["shared", "static"])
def test_a_plugin_that_was_loaded_locally_has_numpy(library, embedding, url, tmp_path):
    archive = [_config.prefix() / "lib" / "libshmbridge.a"]
    libs = archive if library == "static" else shlex.split(_config.libs())
    flags = ["-shared", "-fPIC", "-D_GNU_SOURCE", "-pthread", *shlex.split(_config.cflags())]
    subprocess.run(["cc", *flags, SOURCE, "-o", tmp_path / "plugin.so", *libs], check=True)
    (tmp_path / "host.c").write_text(LOADER)
    subprocess.run(["cc", tmp_path / "host.c", "-o", tmp_path / "host", "-ldl"], check=True)
    environment = {"SHMBRIDGE_PYTHON": str(embedding)}
    subprocess.run(
        [tmp_path / "host", tmp_path / "plugin.so", url("double")],
        env=environment,
        check=True,
        timeout=60,
    )


LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *library = count == 3 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return fprintf(stderr, "%s", dlerror()), 2;
    return ((int (*)(const char *))dlsym(library, "ask"))(words[2]);
}
"""


def test_a_plugin_of_a_python_program_uses_the_python_that_runs(python, url):
    program = python(
        """
        import ctypes, sys
        sys.said = "from this very process"
        library, runner, advice = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p(), ctypes.c_double()
        library.shmb_feature.restype = ctypes.c_void_p
        float32, float64, dims = 11, 12, (ctypes.c_int64 * 1)(1000)
        assert library.shmb_open(sys.argv[2].encode(), None, ctypes.byref(runner)) == 0
        ctypes.memset(library.shmb_feature(runner, b"x", float32, 1, dims), 0, 4000)
        assert library.shmb_evaluate_number(runner, float64, ctypes.byref(advice)) == 0
        assert advice.value == 0
        library.shmb_close(runner)
        print(sys.modules["its_model"].sys.said)
        """,
        _config.library(),
        url("double"),
    )
    assert program.end() == (0, "from this very process")


# ---- It does not start ----


@pytest.fixture
def open_errors(runners, embedding):
    """open_errors(url, library, **environment): what both programs' opens say."""

    def opened(way, url, library, environment):
        program = ScriptedRunner(
            runners[way], env={"SHMBRIDGE_PYTHON": str(library), **environment}, stderr=-3
        )
        with program:
            answers = (
                program.do("open", url),
                program.do("feature x 11 1 2 0000803f00000040"),
                program.do("i64"),
            )
            program.stdin.close()
            assert program.wait(20) == 0
        assert answers[0] == answers[2], answers  # the open's error is the evaluate's
        return answers[0]

    return lambda url, library=embedding, **environment: [
        opened(way, url, library, environment) for way in runners
    ]


def unsupported(answer):
    return int(answer.split()[0]) == UnsupportedError.status


def test_a_wrong_home_is_an_error(open_errors, url):
    for answer in open_errors(url("double"), PYTHONHOME="/nowhere"):
        assert unsupported(answer) and "Python does not start" in answer, answer


def test_a_python_without_the_package_is_an_error(open_errors, embedding, url, tmp_path):
    venv.create(tmp_path / "empty")
    _, library = embedding.read_text().splitlines()
    (tmp_path / "python").write_text(f"{tmp_path}/empty/bin/python\n{library}\n")
    for answer in open_errors(url("double"), tmp_path / "python"):
        says = f"{tmp_path}/empty/bin/python started, but: No module named"
        assert unsupported(answer) and says in answer, answer


def test_another_version_of_the_c_library_is_an_error_and_python_keeps_its_own(
    runners, embedding, url, tmp_path, python, monkeypatch
):
    """As one in /usr/lib, or in LD_LIBRARY_PATH."""
    library, other = _config.library(), re.sub(r"\d", "9", __version__)
    changed = library.read_bytes().replace(__version__.encode(), other.encode())
    (tmp_path / library.name).write_bytes(changed)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    environment = {**os.environ, "SHMBRIDGE_PYTHON": str(embedding)}
    with ScriptedRunner(runners["shared"], env=environment) as program:
        answer = program.do("open", url("double"))
        program.stdin.close()
    assert unsupported(answer) and f"and the program's C library {other}" in answer, answer
    ask = python(
        "import numpy, sys; from shmbridge import connect;"
        "print(connect(sys.argv[1]).evaluate({'x': numpy.ones(1000)}))",
        url("double"),
    )
    assert ask.end() == (0, "2.0")


def test_a_program_without_a_dynamic_loader_is_an_error(embedding, url, tmp_path):
    lib, program = _config.prefix() / "lib", tmp_path / "static"
    flags = ["-static", "-w", "-D_GNU_SOURCE", *shlex.split(_config.cflags())]
    libs = [lib / "libshmbridge.a", "-pthread", "-lrt", "-ldl"]
    subprocess.run(["cc", *flags, SOURCE, "-o", program, *libs], check=True)
    environment = {"SHMBRIDGE_PYTHON": str(embedding)}
    done = subprocess.run(
        [program, "ask", url("double")], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 1 and "linked statically: link without -static" in done.stdout


def test_a_python_that_hangs_at_its_start_is_late_and_may_yet_begin(
    runners, embedding, url, tmp_path
):
    hangs = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    (tmp_path / "sitecustomize.py").write_text(hangs)
    environment = {"SHMBRIDGE_PYTHON": str(embedding), "PYTHONPATH": str(tmp_path)}
    with ScriptedRunner(runners["shared"], env=environment, stderr=-3) as program:
        answer = program.do("open", url("double"))
        assert int(answer.split()[0]) == DeadlineError.status and "-c 'import shmb" in answer
        threading.Timer(1, (tmp_path / "go").touch).start()  # the first caller's end was before
        assert program.do("open", url("double", connect_timeout=100)) == "0"
        program.do("feature x 11 1 2 0000803f00000040")
        assert "AssertionError" in program.do("i64"), "the model has not been asked"
        program.stdin.close()


@pytest.mark.parametrize("text", [None, "", "/bin/python\n", "\x7fELF\n/lib/libpython3.so\n"])
def test_a_file_that_embed_did_not_write_is_an_error_that_says_how_to_have_it(
    open_errors, tmp_path, text
):
    if text is not None:
        (tmp_path / "file").write_text(text)
    for answer in open_errors("pigeon://coop", tmp_path / "file"):
        assert unsupported(answer) and 'no runner for "pigeon://"' in answer, answer
        assert "shmbridge embed" in answer and f"{tmp_path}/file" in answer, answer


# ---- What a model may do ----


def test_a_child_has_what_it_opens_anew_but_no_python(run, url):
    run("fork", url("double"))


# Without a deadline the call is in the thread that gets the signal, so the signal is not late.
@pytest.mark.parametrize("options", [{}, {"retries": 1}])
def test_an_interrupt_from_a_signal_handler_is_said_once(options, run, url):
    run("interrupt", url("signals", deadline="inf", **options))


# ---- The end ----


@pytest.mark.parametrize("options", [{}, {"deadline": "inf"}])  # a thread of the call's own, or not
def test_what_python_buffered_is_not_lost(options, run, url, tmp_path):
    assert run("ask", url("talks", **options)).stdout == "said without a newline; atexit ran"
    assert (tmp_path / "kept").read_text() == "text that nobody flushed"


def test_a_program_ends_while_a_thread_is_in_python(run, url):
    assert run("leave", url("talks_and_sleeps")).stdout == "said without a newline; atexit ran"
    run("leave", url("spins"))


def test_ctrl_c_is_the_programs(programs, embedding, url):
    # A shell may have had it ignored, and we, and our programs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for program in programs.values():
        environment = {"SHMBRIDGE_PYTHON": str(embedding)}
        with subprocess.Popen(
            [program, "ask", url("talks_and_hangs")], env=environment, stdout=subprocess.PIPE
        ) as running:
            running.stdout.readline()
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == -signal.SIGINT


# ---- Writing it down ----


def embed(*words):
    command = [sys.executable, "-m", "shmbridge.cli", "embed", *words]
    return printed(command, cwd="/", timeout=100)


def test_the_command_says_where_it_is(tmp_path):
    done = embed("-o", tmp_path / "python")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "python")), done
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


def test_a_place_that_is_not_writable_is_an_error(tmp_path):
    done = embed("-o", tmp_path / "none" / "python")
    assert (
        done.returncode == 1 and "-o FILE" in done.stderr and len(done.stderr.splitlines()) == 1
    ), done


def test_a_python_without_shared_library_is_an_error(monkeypatch):
    known = {"LIBDIR": "/usr/lib", "INSTSONAME": "libpython3.11.a"}
    monkeypatch.setattr(sysconfig, "get_config_var", known.get)
    with pytest.raises(UnsupportedError, match="no shared library"):
        write()

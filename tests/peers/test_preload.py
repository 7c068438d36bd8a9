"""The preloaded library beside FIFOs, in unmodified compilers; and in all that inherits it without
a channel."""

import os
import re
import subprocess
import sys

import pytest
from support.stock import SOURCES, compiler_of, needs

from shmbridge import _config

pytestmark = pytest.mark.slow

MAKEFILE = r"""
all: program words
	./program $$(cat words)
program: program.c
	$(CC) -o $@ $<
words:
	(echo these; sh -c 'echo words' | tr a-z A-Z) > $@ 2>&1 < /dev/null
	ls nothing-here 2>/dev/null || echo status $$? >> $@
"""
PROGRAM = """
#include <stdio.h>
int main(int argc, char **argv) { for (int i = 1; i < argc; i++) puts(argv[i]); }
"""


@pytest.fixture
def preloaded(tmp_path):
    """An environment in which programs inherit the library and a channel's paths; its
    "SHMBRIDGE_LLVM_REPORT" is not there."""
    ours = {
        "LLVM_BASE": tmp_path / "none",
        "LLVM_URL": "nobody?connect_timeout=0",
        "LLVM_REPORT": tmp_path / "report",
    }
    variables = {f"SHMBRIDGE_{key}": str(value) for key, value in ours.items()}
    return os.environ | variables | {"LD_PRELOAD": str(_config.preload())}


def reported(report):
    """What was asked; not which programs loaded the library."""
    lines = report.read_text().splitlines()
    return [line for line in lines if not line.startswith(("loaded ", "asking "))]


def test_environment_alone_is_enough(preloaded, serve, name, tmp_path):
    """What the library's first comment says: nothing of `shmbridge run` is needed."""
    needs("clang-22")
    used = compiler_of("clang-22", tmp_path)
    base = f"{preloaded['SHMBRIDGE_LLVM_BASE']}.priority"
    flags = [
        "regalloc-enable-priority-advisor=release",
        f"regalloc-priority-interactive-channel-base={base}",
    ]
    command = [
        *used.command(tmp_path / "out.o"),
        *(word for flag in flags for word in ("-mllvm", f"-{flag}")),
    ]
    report, asked = tmp_path / "report", []

    def model(request):
        asked.append(request["context"])
        return -float(request["li_size"][0])

    with serve(model, channels=4):
        there = preloaded | {"SHMBRIDGE_LLVM_URL": name}
        subprocess.run(command, env=there, check=True, timeout=60)
    assert len(asked) > 10
    assert reported(report) == [f"priority {len(asked)} 0 0 "]
    subprocess.run(command, env=preloaded, check=True, timeout=60)
    line = reported(report)[1]
    assert re.fullmatch(r'priority (\d+) \1 3 there is no host named "nobody".*', line), line


@pytest.mark.parametrize("jobs", [1, 4])
def test_make_shell_compiler_and_linker_inherit_it_unharmed(preloaded, jobs, tmp_path):
    needs("make", "cc")
    made = []
    for number, variables in enumerate([os.environ, preloaded]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "Makefile").write_text(MAKEFILE)
        (folder / "program.c").write_text(PROGRAM)
        pipes = {"env": variables, "stdout": -1, "stderr": -1, "text": True, "timeout": 60}
        done = subprocess.run(["make", f"-j{jobs}"], cwd=folder, **pipes)
        made.append((done.returncode, done.stdout, done.stderr, (folder / "program").read_bytes()))
    assert made[0] == made[1]
    assert made[0][0] == 0
    assert made[0][1].endswith("these\nWORDS\nstatus\n2\n")
    assert reported(tmp_path / "report") == []


def test_python_and_its_children_inherit_it_unharmed(preloaded, tmp_path):
    """Threads, pipes, pseudo-terminals, many descriptors, fork and spawn."""
    code = """
        import os, pty, subprocess, tempfile, threading
        def work():
            for _ in range(50):
                with tempfile.TemporaryFile() as file:
                    file.write(b"x" * 100000); file.flush()
                    assert os.pread(file.fileno(), 3, 0) == b"xxx"
                read, write = os.pipe()
                os.write(write, b"abc"); assert os.read(os.dup(read), 3) == b"abc"
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert subprocess.run(["sh", "-c", "cat; exit 3"], input=b"in",
            capture_output=True).stdout == b"in"
        assert pty.spawn(["true"]) == 0
        pid = os.fork()
        if pid == 0:
            os.closerange(3, 1000); os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    program = "\n".join(line[8:] for line in code.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", program], env=preloaded, stdout=-1, stderr=-1, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


AS = {
    "script": '#!/bin/sh\nenv >> "$0.env"\nexec as "$@"\n',
    "musl-gcc": '#include <unistd.h>\nint main(int n, char **w) { return execvp("as", w); }\n',
}


@pytest.mark.parametrize("transport", ["preload"], indirect=True)
@pytest.mark.parametrize("made", AS)
def test_assembler_of_the_compiler_starts_without_it(made, shmbridge_run, tmp_path):
    """One of another C library would fail with it. The compiler's own child, cc1, asks."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "as.c").write_text(AS[made])
    if made == "script":
        (tools / "as.c").rename(tools / "as").chmod(0o755)
    else:
        needs(made)
        subprocess.run([made, tools / "as.c", "-o", tools / "as"], check=True)
    command = ["clang-22", "-O2", "-fno-integrated-as", "-B", tools, "-c"]
    sources = [SOURCES / "numbers.c", SOURCES / "more.c"]
    needs("clang-22")
    outcome = shmbridge_run("inline,priority", "advise", *command, *sources)
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert {label for _, _, label, _ in outcome.questions} == set(map(str, sources))
    if made == "script":
        seen = (tools / "as.env").read_text()
        assert "PATH=" in seen
        assert "LD_PRELOAD" not in seen
        assert "SHMBRIDGE_LLVM" not in seen

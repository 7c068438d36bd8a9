"""A sandbox that refuses a system call costs what docs/troubleshooting.md says: builds are built,
nothing hangs, and an error names the call."""

import platform
import re
import sys
from pathlib import Path

import pytest
from support.cli import SHMBRIDGE
from support.processes import printed
from support.stock import clang, environment, run_words

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]

NUMBERS = """
bind 49 200, eventfd 290 19, fallocate 285 47, flock 73 32, getsockopt 55 209, kill 62 129,
link 86 37, inotify_add_watch 254 27, inotify_init 294 26,
listen 50 201, memfd_create 319 279, mkfifo 259 33,
pidfd_open 434 434, prctl 157 167, prlimit 302 261, recvmsg 47 212, sched_getaffinity 204 123,
sendmsg 46 211, setsid 112 157, socket 41 198, socketpair 53 199, waitid 247 95
"""  # on x86-64, and on aarch64
NUMBERS = {call: numbers for call, *numbers in map(str.split, NUMBERS.split(","))}
BRIDGE = {"fallocate", "link"}
PIPE = {"eventfd", "flock", "mkfifo"}
NEEDS = {  # each command, and the calls without which it does less than it was asked to
    "run": BRIDGE,
    "run --pipes": BRIDGE | PIPE,
    "serve --background": BRIDGE | {"bind", "listen", "setsid", "socket", "waitid"},
    "serve --background pipe://": BRIDGE | PIPE | {"bind", "listen", "setsid", "socket"},
    "stop": {"getsockopt", "kill", "socket"},
    "train": {"flock", "getsockopt", "prlimit", "recvmsg", "sendmsg", "setsid", "socketpair"},
}
REFUSE = """
import ctypes, os, struct, sys
numbers = sys.argv[1].split(",")
# Load the number; if it is one of these, EPERM (1) or ENOSYS (38); else allow.
code = [(0x20, 0, 0, 0), *((0x15, len(numbers) - i, 0, int(n)) for i, n in enumerate(numbers))]
code += [(6, 0, 0, 0x7FFF0000), (6, 0, 0, 0x50000 + int(sys.argv[2]))]
filters = b"".join(struct.pack("HBBI", *each) for each in code)
buffer = ctypes.create_string_buffer(filters, len(filters))
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(buffer))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program)) == 0
os.execvp(sys.argv[3], sys.argv[3:])
"""
ASK = """
import shmbridge, sys
with shmbridge.connect(sys.argv[1], deadline=20) as runner:
    print(runner.evaluate({"x": 1}))
"""
TRAIN = """
from shmbridge._jobs import supervised
report, said = supervised.run(["echo", "done"])
print(said.decode(), report.unstarted, report.stderr)
"""
ALL_OTHERS = "all others"


@pytest.fixture
def without(tmp_path):
    """Runs words in the test's folder without these system calls."""
    (tmp_path / "policy.py").write_text("def advise(request): return 1\n")
    place = environment(tmp_path) | {"XDG_STATE_HOME": str(tmp_path)}
    ours = {key: value for key, value in place.items() if key != "PYTHONPATH"}

    def run(calls, *words, error=1, env=ours):
        numbers = ",".join(str(NUMBERS[call][platform.machine() != "x86_64"]) for call in calls)
        if calls:
            words = [sys.executable, "-c", REFUSE, numbers, str(error), *words]
        return printed(words, env=env, cwd=tmp_path)

    run.stock = place
    return run


def compiles(without, calls, error, tmp_path, *options):
    words = [*run_words("inline,priority", "advise", "-v", *options), *clang(22, tmp_path)]
    warns = ["-include", tmp_path / "warns.h", "-Wall", "-fno-caret-diagnostics"]
    (tmp_path / "warns.h").write_text("#warning shown\n")
    done = without(calls, *words[:-2], *warns, *words[-2:], error=error, env=without.stock)
    assert done.returncode == 0 and (tmp_path / "out.o").exists(), done.stderr
    assert done.stderr.count("shown") == 1, done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("shmbridge: ")]
    assert len(ours) == 1
    return ours[0]


def refused_at(command, call, without, calls, error, tmp_path):
    """What the command says."""
    if command.startswith("run"):
        return compiles(without, calls, error, tmp_path, *command.split()[1:])
    if command == "train":
        done = without(calls, sys.executable, "-c", TRAIN, error=error)
        return done.stdout + done.stderr
    url = f"pipe://{tmp_path}/p?serdes=json" if "pipe" in command else f"sandbox-{tmp_path.name}"
    workers = [] if "pipe" in command else ["--workers", "2"]
    background = ["serve", url, "--background", "--python", "policy:advise", *workers]
    stop = ["stop", url.partition("?")[0]]
    first, last = ([], calls) if command == "stop" else (calls, [])
    try:
        began = without(first, *SHMBRIDGE, *background, error=error)
        if began.returncode:
            return began.stderr
        asked = without(first, sys.executable, "-c", ASK, url, error=error)
        assert asked.stdout == "1\n", asked.stderr
        stopped = without(last, *SHMBRIDGE, *stop, error=error)
        return stopped.stdout + stopped.stderr
    finally:
        without([], *SHMBRIDGE, *stop)


@pytest.mark.parametrize(
    ("command", "call"),
    [(command, call) for command in NEEDS for call in [*sorted(NEEDS[command]), ALL_OTHERS]],
)
def test_a_command_names_the_call_that_it_needs_and_does_without_others(
    command, call, without, tmp_path, long
):
    if call != ALL_OTHERS:
        said = refused_at(command, call, without, [call], 1, tmp_path)
        assert re.search(rf"\b(posix_)?{call}\b", said) and "Operation not permitted" in said, said
        assert "seccomp" in said and "memory" not in said
        return
    others = sorted(NUMBERS.keys() - NEEDS[command])
    together = [call for call in others if call != "kill"]  # prctl, too, ends workers
    alone = [[each] for each in others] if long else []
    for calls in [together, *alone]:
        said = refused_at(command, call, without, calls, 38, tmp_path)
        assert re.search(r"made \d+ of \d+ decisions|^stopped |^done$", said, re.M), (calls, said)


def test_the_page_lists_these_calls():
    page = Path(__file__).parents[2] / "docs/troubleshooting.md"
    table = page.read_text().partition("### System calls")[2].partition("\n## ")[0]
    first = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert set(re.findall(r"`(?:posix_)?([a-z]\w*)`", first)) - {"fcntl", "futex"} == set(NUMBERS)

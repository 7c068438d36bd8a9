"""Programs beside the test, and where bridges are."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

SHM = Path("/dev/shm")


def free_port():
    """A TCP port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def printed(words, timeout=60, **more):
    """Runs a command. timeout: in seconds; None: no limit. Returns its CompletedProcess."""
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, **more)


def until(condition, seconds=30):
    """Waits for it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited for {seconds} seconds in vain"
        time.sleep(0.01)


def stat_of(pid):
    """The fields of /proc/PID/stat from its state on; [] if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid):
    """Whether a process runs; a zombie does not."""
    return stat_of(pid)[:1] not in ([], ["Z"])


def ticks_of(pid):
    """The CPU time that a process has used, in ticks of the clock."""
    return sum(map(int, stat_of(pid)[11:13]))


def words_of(pid):
    """A process's command; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def run_with_shm(options, code, *args):
    """A Python program in a mount namespace with another /dev/shm; options: of its mount."""
    unshare = ["unshare", "-m" if os.geteuid() == 0 else "-Urm"]
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", "/dev/shm"]
    if not shutil.which("unshare") or subprocess.run([*unshare, *mount]).returncode:
        pytest.skip("this user may not mount another /dev/shm")
    program = [sys.executable, "-P", "-c", textwrap.dedent(code), *args]
    command = [*unshare, "sh", "-c", f'{" ".join(mount)} && exec "$@"', "sh", *program]
    return subprocess.run(command, capture_output=True, text=True, cwd="/")


class Process(subprocess.Popen):
    """A Python program beside the test, spoken to by lines."""

    def __init__(self, code, args, python=sys.executable, **options):
        options = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "text": True,
            "bufsize": 1,
            **options,
        }
        super().__init__([python, "-c", textwrap.dedent(code), *map(str, args)], **options)

    def line(self):
        """The next line it prints; "" when it has ended."""
        return self.stdout.readline().strip()

    def say(self, text="go"):
        self.stdin.write(f"{text}\n")
        self.stdin.flush()

    def end(self):
        """Waits for its end: (exit status, the rest of what it printed)."""
        out, _ = self.communicate(timeout=60)
        return self.returncode, out.strip()


class ScriptedRunner(subprocess.Popen):
    """tests/cross/scripted_runner.c, or another that reads its lines: each call is a line to it and
    its line back."""

    def __init__(self, *command, **options):
        super().__init__(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )

    def do(self, *words):
        self.ask(*words)
        return self.answer()

    def ask(self, *words):
        self.stdin.write(" ".join(map(str, words)) + "\n")
        self.stdin.flush()

    def answer(self):
        line = self.stdout.readline()
        assert line, f"the runner died: {self.wait()}"
        return line.strip()

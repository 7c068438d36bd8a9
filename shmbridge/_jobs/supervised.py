"""Programs that run under a supervisor: with limits, and never longer than this process.

What each part is for, with a test in tests/training/test_misbehaving.py: a supervisor in another
process, since it outlives a trainer that is killed; one for all jobs, since starting Python takes
longer than most compilations; another one if it is killed. A lock, since one thread waits for a job
that another ends. The hook behind a fork, since children that hold the supervisor's socket would
hide the trainer's death. The hook at the exit, since nothing may be left then.
"""

import atexit
import contextlib
import math
import os
import secrets
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from shmbridge._bridge import names, open_hosts, overview
from shmbridge._jobs.supervisor import STARTED, WORK_FOLDER, kill_tagged, new_tag
from shmbridge._jobs.supervisor import Report as Report
from shmbridge._native import ffi
from shmbridge.errors import Closing, NoHostError, ShmbridgeError, calling, undone_by

LOOK = 0.25  # seconds between looks at the time
START = 30.0  # seconds for the supervisor to start, on a busy machine
STOP = 10.0  # seconds for it to end what it watches over, which takes milliseconds
MEMORY = 4 << 30  # bytes
KILLED = "the process that supervises the compiler has ended: see stderr, or dmesg"


class SupervisedProcess(Closing):
    """A running program with its own work folder, which close() removes.

    Args:
        command: Its words.
        folder: A `new_folder()`, if the words contain it.
        environment: Variables, in addition to this process's.
        files: What files in the work folder contain at first, by name.
        cwd: Where it runs. None: in the work folder.
        stdout: Keep its stdout, in `output`.
        seconds: Time limit, without waiting for a host of this process.
        memory: Limit of the bytes that all its processes use together.
        url: Where it asks, under `label`. "": nowhere.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] = {},
        cwd: Path | None = None,
        stdout: bool = False,
        seconds: float = 60.0,
        memory: int = MEMORY,
        url: str = "",
        label: str = "",
    ) -> None:
        bridge = _bridge_at(url)
        with calling("socketpair"):
            self._control, its_control = Pipe()
        self._reading = threading.Lock()
        self._report: Report | None = None
        self._pid, self._tag = os.getpid(), new_tag()  # a forked child has no part in it
        self.folder = folder or new_folder()
        self.output = self.folder / "output"
        with its_control, undone_by(self._control.close):
            _hand_over(its_control.fileno(), bridge)
        self._seconds, self._used, self._waited = seconds, 0.0, 0.0
        self._looked: float | None = None  # at the time, once it has started
        self._limit, self._until = "", math.inf  # why it is to end, and how long that may take
        self._bridge, self._label = bridge, os.fsencode(label)
        self._delay = ffi.new("shmb_delay *")
        job = {
            "command": list(command),
            "environment": {**os.environ, "TMPDIR": str(self.folder), **(environment or {})},
            "files": dict(files),
            "cwd": str(cwd or ""),
            "folder": str(self.folder),
            "stdout": str(self.output) if stdout else "",
            "memory": memory,
            "tag": self._tag,
        }
        with contextlib.suppress(OSError):  # a supervisor that is gone shows at wait
            self._control.send(job)

    def wait(self) -> Report:
        """The report, which the job's own limit bounds."""
        with self._reading:
            while self._report is None:
                try:
                    said = self._control.recv() if self._control.poll(LOOK) else None
                except (EOFError, OSError):
                    self._report = self._ended_without_report()
                    break
                if said == STARTED:
                    self._looked = time.monotonic()
                elif said is not None:
                    own = max(0.0, said.seconds - self._waited)
                    self._report = replace(said, limit=said.limit or self._limit, seconds=own)
                elif time.monotonic() > self._until:  # the supervisor hangs
                    self._report = Report(limit=self._limit)
                else:
                    self._count_time()
        return self._report

    def look_again(self) -> Report:
        """The report again; if the supervisor, and with it the folder, has ended since, another."""
        report = self.wait()
        with self._reading:
            ended = self._control.poll(0)
        return self._ended_without_report() if ended else report

    def _ended_without_report(self) -> Report:
        kill_tagged(self._tag)
        return Report(limit=self._limit, stderr="" if self._limit else KILLED)

    def _count_time(self) -> None:
        """Counts the time since the last look as the program's, or as waiting for the host. A host
        of this process says which, not the segment, to which the program can write."""
        if self._looked is None:
            return
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        host = open_hosts.host_of(self._bridge)
        if host is not None and host._delays(self._label, self._delay):
            self._waited += passed
        else:  # a look that came late, since this process was busy, may have missed a wait
            self._used += min(passed, 2 * LOOK)
        if self._used > self._seconds:
            self.end("time limit")

    def end(self, limit: str = "ended") -> None:
        """Asks it to end, without waiting."""
        self._limit = self._limit or limit
        if self._pid == os.getpid():
            self._until = min(self._until, time.monotonic() + STOP)
            with contextlib.suppress(OSError):  # it has ended
                self._control.send(None)

    def close(self) -> None:
        """Ends it and all its processes, and removes its folder. You may call it twice, and while
        another thread waits."""
        self.end()
        if self._pid != os.getpid():
            return
        self.wait()
        with self._reading:
            with contextlib.suppress(EOFError, OSError):
                while self._control.poll(STOP):
                    self._control.recv()
            shutil.rmtree(self.folder, ignore_errors=True)  # if the supervisor was killed


def _bridge_at(url: str) -> str:
    """The name of the bridge at a URL; "" where its scheme has none that others can look at.
    Errors: NoHostError."""
    if not url.startswith("shm://"):
        return ""
    name = names.bridge_name(url)
    there = overview.bridge(name)
    if there is None or not there.alive:
        raise NoHostError(f"expected a host at {url}, found none: start it before its compilers")
    return name


def run(command: Sequence[str], **options: Any) -> tuple[Report, bytes]:
    """Runs a program to its end: its report, and what it printed. Arguments: as
    `SupervisedProcess`."""
    with SupervisedProcess(command, stdout=True, **options) as job:
        report = job.wait()
        return report, job.output.read_bytes() if job.output.exists() else b""


def new_folder() -> Path:
    """The path of a work folder, which a job makes."""
    return Path(tempfile.gettempdir(), WORK_FOLDER + secrets.token_hex(8))


def quoted(words: Sequence[str], folder: Path) -> str:
    """The words for a shell, in which $W is the work folder."""
    pieces = (
        [shlex.quote(part) if part else "" for part in word.split(str(folder))] for word in words
    )
    return " ".join('"$W"'.join(parts) or "''" for parts in pieces)


# ---- The supervisor ----

_lock = threading.Lock()
_supervisor: socket.socket | None = None


def _hand_over(control: int, bridge: str) -> None:
    """Gives the supervisor a job's descriptor. bridge: what it removes if this process is
    killed."""
    global _supervisor
    with _lock:
        for _ in range(2):  # one that was killed is replaced
            _supervisor = _supervisor or _start()
            with calling("sendmsg"), contextlib.suppress(ConnectionError):
                socket.send_fds(_supervisor, [bridge.encode() or b" "], [control])
                return
            _supervisor.close()
            _supervisor = None
    raise ShmbridgeError("the process that starts compilers is killed repeatedly: see dmesg")


def _start() -> socket.socket:
    with calling("socketpair"):
        orders, its_orders = socket.socketpair(type=socket.SOCK_SEQPACKET)
    code = (
        "import sys; sys.path[:] = sys.argv[1:-1]; from shmbridge._jobs.supervisor import main; "
        "main()"
    )
    with its_orders, calling(f"cannot start {sys.executable}: fork, setsid or execve"):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *sys.path, str(its_orders.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its_orders.fileno()],
            start_new_session=True,  # Ctrl-C is for the trainer
        )
    orders.settimeout(START)
    with undone_by(orders.close):
        try:
            with undone_by(process.kill):
                ready = orders.recv(1)
        finally:
            process.wait()  # it leaves the supervisor as an orphan
        if not ready:
            raise ShmbridgeError(
                f"{sys.executable} could not start shmbridge._jobs.supervisor: see stderr"
            )
    orders.settimeout(None)
    return orders


@atexit.register
def _stop() -> None:
    """Nothing is left when this process has ended."""
    if _supervisor:
        with _supervisor, contextlib.suppress(OSError):
            _supervisor.shutdown(socket.SHUT_WR)
            select.select([_supervisor], [], [], STOP)  # until it has ended


def _forget() -> None:
    """In a forked child: the supervisor is the parent's, and ends with it."""
    global _lock, _supervisor
    if _supervisor:
        _supervisor.close()
    _lock, _supervisor = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)

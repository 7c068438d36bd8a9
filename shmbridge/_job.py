"""Programs that run for this process under a supervisor: with limits, and never longer than this process."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmbridge.errors import ShmbridgeError

START = 30.0  # seconds for the guard to start, on a busy machine
STOP = 10.0  # seconds for a supervisor to end what it watches over, which takes milliseconds
MEMORY = 4 << 30  # bytes


@dataclass(frozen=True)
class Report:
    """How a program ended. status: the exit status, or minus the number of the signal; None where `why` says that it did not start or that its
    supervisor was killed."""

    status: int | None = None
    limit: str = ""  # "time limit" or "memory limit", where it went beyond that
    stderr: str = ""  # its end
    seconds: float = 0.0  # without those that it waited for advice
    cpu: float = 0.0  # seconds, of all its processes
    bytes: int = 0  # the most memory that one process had
    unstarted: str = ""  # why it could not be started


class Job:
    """A program under way, with a work folder of its own, which close() removes.

    Args:
        command: Its words, in which `{folder}` becomes the work folder.
        environment: Its variables, beside this process's, in which `{folder}` does too.
        cwd: Where it runs. None: in the work folder.
        stdout: Keep what it prints, in `output`.
        seconds: How long it may take, without the time that it waits for advice.
        memory: Bytes that it and what it starts may have in use.
        bridge: The name of the bridge where it asks, under `label`. "": none.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout: bool = False,
        seconds: float = 60.0,
        memory: int = MEMORY,
        bridge: str = "",
        label: str = "",
    ) -> None:
        self._control, its_control = socket.socketpair()
        self._reading = threading.Lock()  # a descriptor that a thread waits at is not closed
        self._read = b""
        self._report: Report | None = None
        try:
            root = _hand_over(its_control, bridge)
        except BaseException:
            self._control.close()
            raise
        finally:
            its_control.close()
        self.folder = root / str(next(_numbers))
        self.output = self.folder / "output"
        job = {
            "command": list(map(self._placed, command)),
            "environment": {
                **os.environ,
                "TMPDIR": str(self.folder),
                **{name: self._placed(value) for name, value in (environment or {}).items()},
            },
            "cwd": str(cwd or ""),
            "folder": str(self.folder),
            "stdout": str(self.output) if stdout else "",
            "seconds": seconds,
            "memory": memory,
            "bridge": bridge,
            "label": label,
        }
        _jobs.add(self)
        with contextlib.suppress(OSError):  # a supervisor that is gone shows at wait
            self._control.sendall(json.dumps(job).encode() + b"\n")

    def _placed(self, text: str) -> str:
        return text.replace("{folder}", str(self.folder))

    def wait(self) -> Report:
        """The report, which the job's own limit bounds."""
        with self._reading:
            while self._report is None:
                try:
                    more = self._control.recv(1 << 16)
                except OSError:  # closed, or the supervisor was killed
                    more = b""
                self._read += more
                if not more:
                    self._report = Report()
                elif self._read.endswith(b"\n"):
                    self._report = Report(**json.loads(self._read))
        return self._report

    def end(self) -> None:
        """Tells it to end, without waiting for that."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends it and all that it started, and removes its folder. May be called twice, and while another thread waits."""
        self.end()
        if not self._reading.acquire(timeout=STOP):  # the supervisor does not end
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RD)
            self._reading.acquire()
        try:
            with contextlib.suppress(OSError):
                self._control.settimeout(STOP)
                while self._control.recv(1 << 16):
                    pass
            self._control.close()
        finally:
            self._reading.release()
        _jobs.discard(self)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(command: Sequence[str], **options: Any) -> tuple[Report, bytes]:
    """Runs a program to its end: its report, and what it printed. Arguments: as `Job`."""
    with Job(command, stdout=True, **options) as job:
        report = job.wait()
        return report, job.output.read_bytes() if job.output.exists() else b""


def quoted(words: Sequence[str], folder: Path) -> str:
    """The words for a shell, in which $W is the work folder."""
    pieces = (
        [shlex.quote(part) if part else "" for part in word.split(str(folder))] for word in words
    )
    return " ".join('"$W"'.join(parts) or "''" for parts in pieces)


# ---- The guard ----

_numbers = itertools.count()
_lock = threading.Lock()
_guard: tuple[socket.socket, Path] | None = None
_roots: list[Path] = []  # of guards, which remove them, unless they were killed
_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


def _hand_over(control: socket.socket, bridge: str) -> Path:
    """Gives a job's socket to a new supervisor. Returns the folder for work folders.

    bridge: its name, which the guard remembers; "": none.
    """
    global _guard
    with _lock:
        for _ in range(2):  # a guard that was killed is replaced
            _guard = _guard or _start()
            orders, root = _guard
            with contextlib.suppress(OSError):
                socket.send_fds(orders, [b"j" + bridge.encode()], [control.fileno()])
                return root
            orders.close()
            _guard = None
    raise ShmbridgeError("the process that starts compilers is killed again and again: see dmesg")


def _start() -> tuple[socket.socket, Path]:
    orders, its_orders = socket.socketpair(type=socket.SOCK_SEQPACKET)
    code = (
        "import sys; sys.path[:] = sys.argv[1:-2]; from shmbridge._supervisor import main; main()"
    )
    place = [str(os.getpid()), str(its_orders.fileno())]
    with its_orders:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *sys.path, *place],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its_orders.fileno()],
            start_new_session=True,  # Ctrl-C is for the trainer
        )
    orders.settimeout(START)
    try:
        root = os.fsdecode(orders.recv(1 << 12))
    except BaseException:
        process.kill()
        orders.close()
        raise
    finally:
        process.wait()  # it leaves the guard as an orphan
    if not root:
        orders.close()
        raise ShmbridgeError(
            f"{sys.executable} could not start shmbridge._supervisor, which needs Linux 5.3: see stderr"
        )
    orders.settimeout(None)
    _roots.append(Path(root))
    return orders, Path(root)


@atexit.register
def _stop() -> None:
    """Nothing is left when this process has ended."""
    for job in list(_jobs):
        job.end()
    if _guard:
        orders = _guard[0]
        with contextlib.suppress(OSError):
            orders.shutdown(socket.SHUT_WR)
            orders.settimeout(STOP)
            orders.recv(1)  # nothing: it has ended
        orders.close()
    for root in _roots:
        shutil.rmtree(root, ignore_errors=True)


def _forget() -> None:
    """In a forked child: the guard and the jobs are the parent's."""
    global _guard, _lock
    _lock = threading.Lock()
    for job in list(_jobs):
        job._control.close()
        job._reading = threading.Lock()
    if _guard:
        _guard[0].close()
    _guard = None
    _roots.clear()


os.register_at_fork(after_in_child=_forget)

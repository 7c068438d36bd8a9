"""Starts compilers for a trainer, in a separate process: limits them, and ends all their processes.

The trainer starts one *guard*. For each compilation the guard forks a *supervisor*, whose only
child is the compiler. All processes of the compiler stay below the supervisor
(PR_SET_CHILD_SUBREAPER), so none escapes. Trainer and supervisor share a socket: the job goes one
way, the report the other. When the trainer closes its end, or dies, the supervisor ends all
processes and removes the work folder. The guard is no child of the trainer: Ray kills the children
of its processes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from shmbridge._bridge import segment

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
WORK_FOLDER = "shmbridge-task-"  # how the names of work folders begin
ORDER_BYTES = 1 << 13  # of an order to the guard, at most: a bridge's name and a folder
TICK = 0.1  # seconds between looks at memory
# seconds between looks at the memory of all that a compiler started, which needs all of /proc
SCAN = 1.0
GIVE_UP = 5.0  # seconds for killed processes to end: one in the kernel may take its time
STDERR_BYTES = 4096  # of its end
FILE_BYTES = 1 << 30  # of each file that a compiler writes
PAGE = os.sysconf("SC_PAGE_SIZE")
LIBC = ctypes.CDLL(None)


def main() -> None:
    """Becomes the guard. Arguments: the trainer's process id, and the descriptor of its socket."""
    trainer, orders = int(sys.argv[-2]), socket.socket(fileno=int(sys.argv[-1]))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        life = os.pidfd_open(trainer)
        if os.getppid() == trainer and os.fork() == 0:
            LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
            Guard(orders, life).serve()


class Guard:
    """Forks supervisors until the trainer has gone."""

    def __init__(self, orders: socket.socket, life: int) -> None:
        self.orders, self.life = orders, life
        self.supervisors: dict[int, str] = {}  # their work folders
        self.bridges = set[str]()  # that the trainer leaves where it is killed
        self.ended, its_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(its_end)

    def serve(self) -> None:
        """Until the trainer ends."""
        try:
            with contextlib.suppress(ConnectionError):
                self.orders.send(b"r")
                while self._turn():
                    pass
        finally:
            self._end()

    def _turn(self) -> bool:
        ready = poll(self.orders.fileno(), self.life, self.ended)
        if self.ended in ready:
            os.read(self.ended, 4096)
            self._reap()
        if self.orders.fileno() not in ready:
            return self.life not in ready
        order, descriptors, _, _ = socket.recv_fds(self.orders, ORDER_BYTES, 1)
        if not descriptors:
            return False
        bridge, _, folder = os.fsdecode(order).partition("\0")
        self.bridges |= {bridge} - {""}
        with socket.socket(fileno=descriptors[0]) as control:
            try:
                pid = os.fork()
            except OSError as error:  # too many processes, too little memory: of this one's only
                _send(control, {"unstarted": str(error)})
                return True
            if pid == 0:
                self._become_supervisor(control)
            self.supervisors[pid] = folder
        return True

    def _become_supervisor(self, control: socket.socket) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.orders.close()
            Supervisor(control, self.life).serve()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)

    def _reap(self) -> None:
        for pid, status in _reaped():
            folder = self.supervisors.pop(pid, "")
            if os.WIFSIGNALED(status):  # what it watched over is ours now
                for orphan in descendants({os.getpid()}, self.supervisors.keys()):
                    _kill(orphan)
                shutil.rmtree(folder, ignore_errors=True)

    def _end(self) -> None:
        signal.set_wakeup_fd(-1)
        until = time.monotonic() + GIVE_UP
        while self.supervisors and time.monotonic() < until:
            self._reap()
            time.sleep(0.005)
        kill_all(GIVE_UP)
        for name in self.bridges:
            segment.remove_dead(name)


class Supervisor:
    """One compilation: its job from the socket, its report back, and its end."""

    def __init__(self, control: socket.socket, life: int) -> None:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.control, self.life = control, life
        self.job = json.loads(control.makefile().readline() or "{}")
        self.folder = self.job.get("folder")
        self.stderr = b""
        self.limit = ""  # "memory limit", if the compiler went beyond that

    def serve(self) -> None:
        """From the job to the removal of its folder."""
        if not self.job:
            return
        try:
            try:
                report = self._compile()
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                report = {"unstarted": str(error)}
            _send(self.control, report)
            poll(self.control.fileno(), self.life)  # the output is wanted until then
        finally:
            kill_all(GIVE_UP)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _compile(self) -> dict[str, Any]:
        """The report."""
        started = time.monotonic()
        errors, its_errors = os.pipe()
        os.set_blocking(errors, False)
        _make_folder(self.folder)
        for name, data in self.job["files"].items():
            Path(self.folder, name).write_bytes(bytes.fromhex(data))
        compiler = self._start(its_errors)
        _send(self.control, None)
        self._watch(compiler.pid, errors, started)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(compiler.pid, signal.SIGKILL)
        status, usage = os.wait4(compiler.pid, 0)[1:]
        kill_all(GIVE_UP)
        self._read(errors)
        return {
            "status": os.waitstatus_to_exitcode(status),
            "limit": self.limit,
            "stderr": self.stderr.decode(errors="replace"),
            "seconds": time.monotonic() - started,
            "cpu": usage.ru_utime + usage.ru_stime,
            "bytes": usage.ru_maxrss << 10,
        }

    def _start(self, stderr: int) -> subprocess.Popen[bytes]:
        job, parent = self.job, os.getpid()

        def in_child() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            most = FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, FILE_BYTES)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            # Where memory ends, a compiler goes, not the trainer.
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000")
            if os.getppid() != parent:
                os._exit(1)

        with open(job["stdout"] or os.devnull, "wb") as stdout:
            return subprocess.Popen(
                job["command"],
                env=job["environment"],
                cwd=job["cwd"] or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=in_child,
            )

    def _watch(self, pid: int, errors: int, started: float) -> None:
        """Until the compiler has ended or is to end."""
        compiler = os.pidfd_open(pid)
        looked, scanned = started, started
        try:
            while True:
                ready = poll(compiler, errors, self.control.fileno(), self.life, timeout=TICK)
                if errors in ready:
                    self._read(errors)
                if {compiler, self.control.fileno(), self.life} & ready:
                    return
                now = time.monotonic()
                if now - looked < TICK:
                    continue
                everything, looked = now - scanned >= SCAN, now
                scanned = now if everything else scanned
                if self._memory(pid, everything) > self.job["memory"]:
                    self.limit = "memory limit"
                    return
        finally:
            os.close(compiler)

    def _read(self, errors: int) -> None:
        """Keeps the end of what came to stderr, a turn's worth."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(16):
                self.stderr = (self.stderr + os.read(errors, 1 << 16))[-STDERR_BYTES:]

    def _memory(self, pid: int, everything: bool) -> int:
        """Bytes that the compiler has in use; or everything that it started."""
        return sum(map(resident, descendants({os.getpid()}) if everything else {pid}))


def _send(control: socket.socket, report: dict[str, Any] | None) -> None:
    """None: the compiler has started, so its time runs."""
    line = json.dumps(report).encode() if report else b""
    with contextlib.suppress(OSError):  # the trainer has ended
        control.sendall(line + b"\n")


# ---- Work folders ----


def _make_folder(path: str) -> None:
    """Makes a work folder and locks it, for as long as this process lives."""
    os.mkdir(path, 0o700)
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX)


def remove_dead_folders(parent: str) -> list[str]:
    """Removes this user's work folders whose supervisors were killed. Returns their paths."""
    removed = []
    for path in sorted(map(str, Path(parent).glob(f"{WORK_FOLDER}*"))):
        with contextlib.suppress(OSError):  # no folder, or its supervisor lives
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(folder).st_uid == os.geteuid():
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                    removed.append(path)
            finally:
                os.close(folder)
    return removed


# ---- Processes ----


def poll(*descriptors: int, timeout: float | None = None) -> set[int]:
    """Those that have something to read or have ended, once there is one; none: time is over."""
    them = select.poll()
    for descriptor in descriptors:
        them.register(descriptor, select.POLLIN)
    return {found for found, _ in them.poll(None if timeout is None else timeout * 1e3)}


def resident(pid: int) -> int:
    """Bytes of memory that a process has in use; those that it shares count as its own."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def descendants(ancestors: set[int], but: Set[int] = frozenset()) -> set[int]:
    """All processes below these, without those in `but` and what is below them."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                parents[int(entry)] = int(parent)
    found: set[int] = set()
    new = ancestors
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found - but
        found |= new
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _reaped() -> Iterator[tuple[int, int]]:
    """The children that have ended, with their statuses."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def kill_all(seconds: float) -> None:
    """Ends all processes below this one: as their parents end they become its children, so it sees
    when none is left."""
    until = time.monotonic() + seconds
    while _has_children() and time.monotonic() < until:
        for pid in descendants({os.getpid()}):
            _kill(pid)
        time.sleep(0.002)
        for _ in _reaped():
            pass

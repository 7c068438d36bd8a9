"""Runs compilers for a trainer, in one process: limits them, and ends all that they started.

The trainer starts one *supervisor*, which has a thread and a socket for each job: the job goes one
way, the report the other. When the trainer closes its end, or dies, the supervisor ends all
processes of the job and removes its work folder. It is no child of the trainer: Ray kills the
children of its processes first.

A job's processes are those with its number as their limit of real-time CPU (RLIMIT_RTTIME). Every
process inherits that, also a daemon whose parents have ended, and compilers have no use for it.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shmbridge._bridge import names, overview, segment
from shmbridge.errors import calling, ending

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
WORK_FOLDER = "shmbridge-task-"  # how the names of work folders begin
NAME_BYTES = 1 << 10  # of a bridge, at most
TICK = 0.1  # seconds between looks at a compiler's memory
SCAN = 1.0  # seconds between looks at the memory of all that it started, which needs all of /proc
GIVE_UP = 5.0  # seconds for killed processes to end: one in the kernel may take its time
STDERR_BYTES = 4096  # of its end
FILE_BYTES = 1 << 30  # of each file that a compiler writes
PAGE = os.sysconf("SC_PAGE_SIZE")
LIBC = ctypes.CDLL(None)
STARTED = "started"  # the word before a report: the program's time runs


@dataclass(frozen=True)
class Report:
    """How a program ended. status: the exit status, or minus the number of the signal; None if it
    did not start, or its supervisor was killed or hangs."""

    status: int | None = None
    limit: str = ""  # "time limit" or "memory limit", where it went beyond that; "ended" by us
    stderr: str = ""  # its end
    seconds: float = 0.0  # without those that a host of this process kept it waiting
    cpu: float = 0.0  # seconds, of all its processes
    bytes: int = 0  # the most memory that one process had
    unstarted: str = ""  # why it could not be started

    @property
    def failure(self) -> str:
        """How it failed; "": it did not."""
        if self.status == 0:
            return ""
        known = "its supervisor was killed" if self.status is None else ending(self.status)
        return self.limit or self.unstarted or known


def main() -> None:
    """Becomes the supervisor. Its last argument: the descriptor of the trainer's socket."""
    with calling("the process that starts compilers needs getsockopt and recvmsg"):
        orders = socket.socket(fileno=int(sys.argv[-1]))
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, nobody can be waited for
        if os.fork() == 0:
            LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
            serve(orders)


def serve(orders: socket.socket) -> None:
    """Runs each job in a thread until the trainer has ended. Its forked children have closed their
    end."""
    over, ends = os.pipe()
    threads: list[threading.Thread] = []
    bridges = set[str]()  # that the trainer leaves where it is killed
    with contextlib.suppress(ConnectionError):
        orders.send(b"r")
        while (received := socket.recv_fds(orders, NAME_BYTES, 1))[0]:
            bridge, descriptors, *_ = received
            bridges.add(bridge.decode().strip())
            threads = [thread for thread in threads if thread.is_alive()]
            for descriptor in descriptors:
                job = Job(Connection(descriptor), over)
                thread = threading.Thread(target=job.run)
                try:
                    thread.start()
                except RuntimeError as error:  # too many threads: of this job only
                    job.send(Report(unstarted=str(error)))
                else:
                    threads.append(thread)
    os.close(ends)
    for thread in threads:
        thread.join(2 * GIVE_UP)
    closed, until = select.poll(), time.monotonic() + GIVE_UP
    closed.register(orders, 0)  # not if the trainer only ended its part, and removes them itself
    for name in bridges - {""}:
        segment.remove_dead(name)
        path = names.segment_path(name)  # a killed process lets go of one descriptor after another
        while closed.poll(0) and path.exists() and time.monotonic() < until:
            time.sleep(0.01)
            segment.remove_dead(name)
    os._exit(0)  # even if a process in the kernel does not end


class Job:
    """A compilation: its order from the socket, its report back, and its end."""

    def __init__(self, control: Connection, over: int) -> None:
        self.control, self.over = control, over  # each has something to read once it is to end
        self.order: dict[str, Any] = {}
        self.stderr = b""
        self.limit = ""  # "memory limit", "ended": it was ended for that

    def run(self) -> None:
        """From the order to the removal of its folder."""
        with self.control, contextlib.suppress(EOFError, ConnectionError):
            self.order = self.control.recv()
            with contextlib.ExitStack() as stack:
                try:
                    report = self._compile(stack)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    report = Report(unstarted=str(error))
                self.send(report)
                poll(self.control.fileno(), self.over)  # the output is wanted until then

    def _compile(self, stack: contextlib.ExitStack) -> Report:
        """The report. stack: the folder's end."""
        started = time.monotonic()
        stack.callback(shutil.rmtree, self.order["folder"], ignore_errors=True)
        stack.callback(os.close, _make_folder(self.order["folder"]))
        for name, data in self.order["files"].items():
            Path(self.order["folder"], name).write_bytes(data)
        errors, its_errors = os.pipe()
        stack.callback(os.close, errors)
        os.set_blocking(errors, False)
        try:
            compiler = self._start(its_errors)
        finally:
            os.close(its_errors)
        self.send(STARTED)
        try:
            life = life_of(compiler.pid)
            stack.callback(os.close, life)
            self._watch(compiler.pid, life, errors, started)
        finally:
            try:
                os.killpg(compiler.pid, signal.SIGKILL)  # at once, also one that forks
            except OSError:  # a sandbox refuses it: one that still runs ends with this thread
                if not os.waitid(os.P_PID, compiler.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    raise
            _, status, usage = os.wait4(compiler.pid, 0)
            compiler.returncode = os.waitstatus_to_exitcode(status)
            kill_tagged(self.order["tag"])
        self._read(errors)
        return Report(
            compiler.returncode,
            self.limit,
            self.stderr.decode(errors="replace"),
            time.monotonic() - started,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss << 10,
        )

    def _start(self, stderr: int) -> subprocess.Popen[bytes]:
        order, parent = self.order, os.getpid()

        def in_child() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # of this thread
            resource.setrlimit(resource.RLIMIT_RTTIME, (order["tag"], order["tag"]))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            most = FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, FILE_BYTES)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            # Where memory ends, a compiler goes, not the trainer.
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000")
            if os.getppid() != parent:
                os._exit(1)

        with open(order["stdout"] or os.devnull, "wb") as stdout:
            return subprocess.Popen(
                order["command"],
                env=order["environment"],
                cwd=order["cwd"] or order["folder"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=in_child,
            )

    def _watch(self, pid: int, compiler: int, errors: int, started: float) -> None:
        """Returns when the compiler has ended, or must end; `limit` says why."""
        looked, scanned, ends = started, started, {compiler, self.control.fileno(), self.over}
        watched = {errors, *ends}
        while True:
            ready = poll(*watched, timeout=TICK)
            if errors in ready and self._read(errors):
                watched.discard(errors)
            if ready & ends:
                self.limit = "ended" if self.over in ready else ""
                return
            now = time.monotonic()
            if now - looked < TICK:
                continue
            everything, looked = now - scanned >= SCAN, now
            scanned = now if everything else scanned
            own = by_tag()[self.order["tag"]] if everything else [pid]
            if sum(map(resident, own)) > self.order["memory"]:
                self.limit = "memory limit"
                return

    def _read(self, errors: int) -> bool:
        """Reads up to 1 MiB of stderr and keeps its end. Returns whether stderr is closed."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(16):
                more = os.read(errors, 1 << 16)
                self.stderr = (self.stderr + more)[-STDERR_BYTES:]
            return not more
        return False

    def send(self, word: Report | str) -> None:
        """To the trainer, unless that has ended."""
        with contextlib.suppress(OSError):
            self.control.send(word)


# ---- Work folders ----


def _make_folder(path: str) -> int:
    """Makes a work folder and locks it, as long as the descriptor is open."""
    os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with calling("flock"):
        fcntl.flock(folder, fcntl.LOCK_EX)
    return folder


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


def new_tag() -> int:
    """The number of a job and its processes, which no other job of this machine has."""
    with calling("prlimit"):
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]  # microseconds
    return secrets.randbelow(1 << 62 if hard == resource.RLIM_INFINITY else max(1, hard))


def by_tag() -> dict[int, list[int]]:
    """The processes of all jobs, and others, by their limits of real-time CPU."""
    found = defaultdict[int, list[int]](list)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            found[resource.prlimit(int(entry), resource.RLIMIT_RTTIME)[1]].append(int(entry))
    return found


def kill_tagged(tag: int) -> None:
    """Kills the processes of a job, and reaps those that are this process's children."""
    seen, until = set[int](), time.monotonic() + GIVE_UP
    while (pids := set(by_tag()[tag])) and time.monotonic() < until:
        new = pids - seen  # all stop before one is killed, since they can fork faster than we kill
        for pid in new or pids:
            with contextlib.suppress(OSError):  # it has ended, or is not our child
                os.kill(pid, signal.SIGSTOP if new else signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        seen |= new
        until = time.monotonic() + GIVE_UP if new else until
        time.sleep(0 if new else 0.002)


def poll(*descriptors: int, timeout: float | None = None) -> set[int]:
    """Waits for descriptors that can be read or have ended, and returns them; none: timeout."""
    them = select.poll()
    for descriptor in descriptors:
        them.register(descriptor, select.POLLIN)
    return {found for found, _ in them.poll(None if timeout is None else timeout * 1e3)}


def life_of(pid: int) -> int:
    """A descriptor, the caller's, that `poll` reports once a child has ended. Where a sandbox
    refuses pidfds, a thread looks."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        life, its_life = os.pipe()

    def look() -> None:
        with contextlib.suppress(OSError):
            while overview.stat_of(pid)[0] != b"Z":
                time.sleep(TICK / 5)
        os.close(its_life)

    threading.Thread(target=look, daemon=True).start()
    return life


def resident(pid: int) -> int:
    """Bytes of memory that a process has in use; those that it shares count as its own."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0

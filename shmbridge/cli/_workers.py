"""The supervisor of `shmbridge serve --workers`: hosts that share a name, each in a process.

It forks them before a model is loaded, since a process with threads or a GPU must not be forked,
and replaces those that die. If it is killed, the kernel kills them.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from shmbridge import Host
from shmbridge._bridge import segment
from shmbridge._jobs.supervisor import LIBC, PR_SET_PDEATHSIG
from shmbridge._native import lib
from shmbridge.cli import _processes
from shmbridge.cli._processes import ENDING, LOOK, on_signals
from shmbridge.errors import calling, ending

STEADY = 10.0  # seconds after which a worker's end is no sign that the next one ends as well
PAUSE = 1.0  # seconds before a worker that ended earlier is replaced
ENDED = os.WEXITED | os.WNOWAIT
GRACE = 1.0, 1.5, 3.0  # `shmbridge stop` gives the supervisor 4 s


@dataclass(frozen=True)
class Worker:
    """A host that shares its name with others, in its process."""

    number: int
    count: int
    introduces: bool  # it prints that all workers answer
    answers: Callable[[], None]  # to be called once it does


class WorkerHost(Host):
    def __init__(self, worker: Worker, name: str, **options: Any) -> None:
        self._worker, self._workers = worker.number, worker.count
        super().__init__(name, **options)


def become_worker(name: str, count: int, answers: Callable[[], None]) -> Worker:
    """Starts workers, and returns in each of them. The caller's process supervises them, calls
    `answers` when all of them answer, and ends here, with SystemExit or an error.

    Raises:
        InUseError: A live host has the name.
    """
    segment.require_free_name(name)
    supervisor = _Supervisor(name, count)
    try:
        worker = supervisor.start()
        if worker is None:
            answers()
            worker = supervisor.replace()
    except BaseException as error:
        if os.getpid() == supervisor.pid:
            supervisor.end()
            if isinstance(error, KeyboardInterrupt) and supervisor.started:
                sys.exit(0)
        raise
    supervisor.leave()
    return worker


class _Supervisor:
    def __init__(self, name: str, count: int) -> None:
        self.name, self.count, self.pid = name, count, os.getpid()
        self.started = False  # all workers have answered
        self._workers: dict[int, tuple[int, float]] = {}  # (number, start), by process
        self._ready, self._its_ready = os.pipe()

    def start(self) -> Worker | None:
        """Starts all workers: the first one before the others, since if it fails, so would they,
        and the last one after them, since it prints that all answer. Returns None then."""
        for first, end in (0, 1), (1, self.count - 1), (self.count - 1, self.count):
            for number in range(first, end):
                if worker := self._fork(number):
                    return worker
            self._wait_for_answers(end - first)
        self.started = True
        return None

    def _wait_for_answers(self, count: int) -> None:
        while count > 0:
            if select.select([self._ready], [], [], LOOK)[0]:
                count -= len(os.read(self._ready, lib.MAX_WORKERS))
                continue
            if ended := self._reap(os.WNOHANG):
                number, _, status = ended
                if status < 0:
                    click.echo(f"Error: worker {number} ended early: {ending(status)}", err=True)
                raise SystemExit(status if status > 0 else 1)

    def replace(self) -> Worker:
        """Replaces workers that end, until a signal arrives; returns only in a new one."""
        due: dict[int, float] = {}  # when to start which worker
        while True:
            if ended := self._reap(os.WNOHANG if due else 0):
                number, seconds, status = ended
                pause = PAUSE if seconds < STEADY else 0.0
                due[number] = time.monotonic() + pause
                click.echo(
                    f"worker {number} has ended ({ending(status)}): starting another"
                    + (f" in {pause:.1f} s" if pause else ""),
                    err=True,
                )
            else:
                time.sleep(LOOK)
            for number in [each for each, at in due.items() if at <= time.monotonic()]:
                del due[number]
                segment.require_free_name(self.name, number)
                if worker := self._fork(number):
                    return worker

    def _fork(self, number: int) -> Worker | None:
        """Forks a worker. Returns None here, and a Worker in the child, whose signals are blocked
        until `leave`."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        pid = os.fork()
        if pid == 0:
            with calling("setsid"):
                os.setsid()  # the terminal's signals are the supervisor's, which passes them on
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.pid:
                os._exit(1)
            last = number == self.count - 1
            return Worker(number, self.count, last and not self.started, self._answers)
        self._workers[pid] = number, time.monotonic()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return None

    def _answers(self) -> None:
        if not self.started:
            os.write(self._its_ready, b"\n")

    def _reap(self, options: int = 0) -> tuple[int, float, int] | None:
        """Once a worker has ended, its number, the seconds that it lived, and its exit status. None
        if it was another child, as a container's first process has, or if with WNOHANG none has."""
        ended = None
        with calling("waitid"), suppress(ChildProcessError):  # all are to be started
            ended = os.waitid(os.P_ALL, 0, ENDED | options)
        if not ended:
            return None
        worker = self._workers.pop(ended.si_pid, None)  # first: a signal may come between both
        status = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
        return worker and (worker[0], time.monotonic() - worker[1], status)

    def end(self) -> None:
        """Ends all workers, and removes what those that were killed left."""
        on_signals(signal.SIG_IGN)
        left = list(self._workers)

        def ended(seconds: float) -> bool:
            until = time.monotonic() + seconds
            left[:] = [
                pid for pid in left if _processes.reap(pid, until - time.monotonic()) is None
            ]
            return not left

        _processes.end(left, ended, GRACE)
        segment.remove_dead(self.name)

    def leave(self) -> None:
        """In a worker: closes what is the supervisor's, and lets signals end this process."""
        os.close(self._ready)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

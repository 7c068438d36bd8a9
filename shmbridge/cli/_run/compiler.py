"""The compiler of `shmbridge run`: the signals that it gets, its standard streams, its end."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def heeded() -> list[signal.Signals]:
    """The signals that this process does not ignore, for example because of nohup."""
    return [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]


class Signals:
    """While the block runs, SIGINT, SIGTERM and SIGHUP go to the compiler; before there is one,
    they end the block."""

    def __init__(self) -> None:
        self.compiler: subprocess.Popen[bytes] | None = None
        self.caught = 0  # before there was a compiler
        self.passed_on = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.compiler is None:
            self.caught = number
            raise KeyboardInterrupt
        self.passed_on = True
        self.compiler.send_signal(number)

    @contextlib.contextmanager
    def forwarded(self) -> Iterator[Signals]:
        """The block."""
        old = {number: signal.signal(number, self._handle) for number in heeded()}
        try:
            yield self
        except KeyboardInterrupt:
            if not self.caught:
                raise
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
        if self.caught:
            die_of(self.caught)

    def run(self, command: Sequence[str], environment: Mapping[str, str], **streams: Any) -> int:
        """The compiler's exit status; negative: the signal that ended it. It gets SIGTERM when this
        process is killed. streams: its stdin, stdout and stderr, if they are not ours."""
        libc, parent = ctypes.CDLL(None), os.getpid()

        def in_child() -> None:
            for number in heeded():
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        # Until there is someone to forward them to.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:  # what make's job server and others pass on stays open
            self.compiler = subprocess.Popen(
                command, env=environment, close_fds=False, preexec_fn=in_child, **streams
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self.compiler.wait()


class Streams:
    """The compiler's standard streams, kept so that it can run a second time."""

    def __init__(self) -> None:
        self._kept: dict[str, io.FileIO] = {}

    def keep(self, reads: bool, writes: bool) -> None:
        """Reads all of the standard input, and holds the output back, where the compiler uses
        them."""
        if reads:
            shutil.copyfileobj(sys.stdin.buffer, self._keep("stdin"))
        if writes:
            self._keep("stdout")

    def keep_errors(self) -> None:
        """The compiler has printed its warnings already: holds them back from now on."""
        self._keep("stderr")

    def _keep(self, name: str) -> io.FileIO:
        self._kept[name] = io.FileIO(os.memfd_create(f"shmbridge-{name}"), "r+")
        return self._kept[name]

    def rewound(self) -> dict[str, io.FileIO]:
        """For `Signals.run`: the input from its start, and empty outputs."""
        for name, file in self._kept.items():
            file.seek(0)
            if name != "stdin":
                file.truncate()
        return self._kept

    def deliver(self, status: int) -> None:
        """Writes the output that was held back, and the errors if the compiler failed."""
        for name, stream in ("stdout", sys.stdout), ("stderr", sys.stderr):
            if name in self._kept and (name == "stdout" or status):
                self._kept[name].seek(0)
                shutil.copyfileobj(self._kept[name], stream.buffer)
                stream.flush()


def die_of(number: int) -> None:
    """Ends this process by a signal, without another core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL has no handlers
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

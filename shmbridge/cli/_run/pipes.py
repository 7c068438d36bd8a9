"""How an unmodified compiler asks in `shmbridge run --pipes`; otherwise it has a runner inside it
(shmbridge/_llvm/preload.py)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from shmbridge._llvm.preload import Count
from shmbridge._native import ffi, lib
from shmbridge.cli._run.compiler import FORWARDED
from shmbridge.cli._run.policy import FORK, end
from shmbridge.errors import raise_status, undone_by

LOOK_NS = 20_000_000


class Pipes:
    """A folder with a pair of named pipes for each decision, between compilers and a host's
    runners.

    A compiler whose pipe ends spins for ever: so, should this process be killed, or a compiler not
    get its answers, a guard ends those that have a pipe open, and removes the folder.
    """

    environment: Mapping[str, str] = {}  # nothing that a compiler must know

    def __init__(
        self,
        decisions: Sequence[str],
        url: str,
        defaults: Mapping[str, str],
        limit: int | None,
        label: str,
    ) -> None:
        self._defaults = defaults
        self.folder = Path(tempfile.mkdtemp(prefix="shmbridge-"))
        self.decisions = decisions
        read_end, self._write_end = FORK.Pipe(duplex=False)
        self._guard = FORK.Process(target=_guard, args=(self.folder, read_end, self._write_end))
        with undone_by(self.folder.rmdir):
            self._guard.start()
        read_end.close()
        self._server = lib.shmb_pipe_server_new(-1 if limit is None else limit)
        self._thread: threading.Thread | None = None
        self._stuck = False  # a compiler could not be answered, and was ended
        with undone_by(self.close):
            for decision in decisions:
                self._add(decision, url, defaults.get(decision, ""), label)
        self._thread = threading.Thread(target=self._serve)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # they are for the main thread
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _add(self, decision: str, url: str, default: str, label: str) -> None:
        base = self.base(decision)
        for suffix in (".in", ".out"):
            os.mkfifo(base + suffix, 0o600)
        out, text = ffi.new("shmb_runner **"), ffi.new("char[]", os.fsencode(label))
        options = ffi.new("shmb_options *", {"size": ffi.sizeof("shmb_options"), "label": text})
        lib.shmb_open(url.encode(), options, out)  # one that fails says so at every question
        status = lib.shmb_pipe_server_add(
            self._server, base.encode(), b"llvm", default.encode(), 0, out[0]
        )
        if status:
            raise_status(status, self._reason())

    def _reason(self) -> str:
        text: bytes = ffi.string(lib.shmb_pipe_server_error(self._server))
        return text.decode(errors="replace")

    def _serve(self) -> None:
        """Until close(), or until what is compiled will be discarded: then the guard ends those
        with a pipe open."""
        status = lib.SHMB_TIMEOUT
        while status == lib.SHMB_TIMEOUT and not self._is_useless():
            status = lib.shmb_pipe_server_run(self._server, LOOK_NS)
        if status:
            self._stuck = status != lib.SHMB_TIMEOUT
            lib.shmb_pipe_server_close(self._server)
            self._write_end.close()

    def _is_useless(self) -> bool:
        counts = self.counts()
        return any(count.defaulted and count.decision not in self._defaults for count in counts)

    def base(self, decision: str) -> str:
        """The path of a decision's pipes, without .in and .out."""
        return str(self.folder / decision)

    def counts(self) -> list[Count]:
        """What was asked so far."""
        info, counts = ffi.new("shmb_conversation_info *"), []
        for line, decision in enumerate(self.decisions):
            lib.shmb_pipe_server_info(self._server, line, info)
            why = ffi.string(info.why).decode(errors="replace") if info.status and info.why else ""
            counts.append(Count(decision, info.asked, info.defaulted, info.status, why))
        return counts

    def report(self) -> str:
        """Ends the thread, since no compiler is left: what was asked, as the preloaded library says
        it."""
        if self._thread:
            lib.shmb_pipe_server_stop(self._server)
            self._thread.join()
            self._thread = None
        counts = self.counts()
        if self._stuck:
            counts.append(Count(self.decisions[0], 1, 1, lib.SHMB_SYSTEM, self._reason()))
        return "".join(count.line() for count in counts)

    def close(self) -> None:
        """Ends the thread, and removes the folder."""
        self.report()
        shutil.rmtree(self.folder, ignore_errors=True)
        end(self._guard, self._write_end)
        lib.shmb_pipe_server_free(self._server)


def _guard(folder: Path, read_end: Connection, write_end: Connection) -> None:
    write_end.close()
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    read_end.poll(None)
    if not folder.exists():
        return
    # Who waits for a pipe's other end now has one, and is found; nobody else comes once the folder
    # is gone.
    held = [os.open(pipe, os.O_RDWR | os.O_NONBLOCK) for pipe in folder.iterdir()]
    shutil.rmtree(folder, ignore_errors=True)
    # The second time: who was about to wait. LLVM removes its temporary files at the first signal.
    # Who started these gets it first: clang's driver would write a reproducer of their crash.
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in [pid for holder in _holders(folder) for pid in _started_by(holder)]:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        time.sleep(0.1)
    for pipe in held:
        os.close(pipe)


def _holders(folder: Path) -> list[int]:
    """The processes that have a file of this folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            files = [os.readlink(fd) for fd in (process / "fd").iterdir()]
            if any(file.startswith(f"{folder}/") for file in files):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]


def _started_by(pid: int) -> list[int]:
    """The process, after those between it and the one that started the guard."""
    chain = [pid]
    with contextlib.suppress(OSError):
        while (parent := _parent(chain[0])) not in (0, 1, os.getppid()):
            chain.insert(0, parent)
        return chain if parent == os.getppid() else [pid]
    return [pid]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

"""How an unmodified compiler asks in `shmbridge run --pipes`; otherwise it has a runner inside it
(shmbridge/_llvm/preload.py)."""

import contextlib
import hashlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shmbridge._bridge.overview import stat_of
from shmbridge._native import ffi, lib
from shmbridge.cli._processes import on_signals
from shmbridge.cli._run.child import Child
from shmbridge.errors import calling, raise_status, undone_by

START = 10.0  # seconds for the pipes to be there
LOOK_NS = 20_000_000


class Pipes(Child):
    """A folder with a pair of named pipes for each decision, between compilers and a host's
    runners, in a process that at last appends to the file `report`, as the preloaded library does.

    A compiler whose pipe ends spins for ever: so, should the run be killed, or a compiler not get
    its answers, this process ends those that have a pipe open.
    """

    def __init__(
        self,
        command: Sequence[str],
        decisions: Sequence[str],
        url: str,
        defaults: Mapping[str, str],
        limit: int,
        label: str,
        report: int,
    ) -> None:
        self._decisions, self._url, self._label = decisions, url, label
        self._defaults, self._limit, self._report = defaults, limit, report
        self.folder = _new_folder(command)
        with undone_by(self._remove):
            super().__init__("pipes", self._work, START)

    def base(self, decision: str) -> str:
        """The path of a decision's pipes, without .in and .out."""
        return str(self.folder / decision)

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self, grace: float = 1.0) -> None:
        super().close(grace)
        self._remove()

    def _work(self, works: Callable[[str], None], life: Connection) -> None:
        on_signals(signal.SIG_IGN)  # when the run ends, this process removes the folder
        server, orphaned = lib.shmb_pipe_server_new(self._limit), list[bool]()

        def end_with_run() -> None:
            try:
                life.recv()
            except EOFError:
                orphaned.append(True)
            lib.shmb_pipe_server_stop(server)

        for decision in self._decisions:
            self._add(server, decision)
        threading.Thread(target=end_with_run, daemon=True).start()
        works("")
        status = lib.SHMB_TIMEOUT
        while status == lib.SHMB_TIMEOUT and not self._is_useless(server):
            status = -lib.shmb_pipe_server_run(server, ffi.NULL, LOOK_NS)
        lines = [_line(name, info) for name, info in self._infos(server)]
        stopped = status == lib.SHMB_INTERRUPTED
        if not stopped and status != lib.SHMB_TIMEOUT:
            lines.append(f"{self._decisions[0]} 1 1 {lib.SHMB_SYSTEM} {_reason(server)}\n")
        os.write(self._report, "".join(lines).encode())
        if not stopped or orphaned:
            lib.shmb_pipe_server_close(server)
            self._end_compilers()
        os._exit(0)

    def _is_useless(self, server: Any) -> bool:
        """Will what is compiled be discarded?"""
        infos = self._infos(server)
        return any(info.defaulted and name not in self._defaults for name, info in infos)

    def _infos(self, server: Any) -> list[tuple[str, Any]]:
        infos = [ffi.new("shmb_conversation_info *") for _ in self._decisions]
        for line, info in enumerate(infos):
            lib.shmb_pipe_server_info(server, line, info)
        return list(zip(self._decisions, infos, strict=True))

    def _add(self, server: Any, decision: str) -> None:
        base = self.base(decision)
        for suffix in (".in", ".out"):
            with calling("mkfifo"):
                os.mkfifo(base + suffix, 0o600)
        out, text = ffi.new("shmb_runner **"), ffi.new("char[]", os.fsencode(self._label))
        options = ffi.new("shmb_options *", {"size": ffi.sizeof("shmb_options"), "label": text})
        lib.shmb_open(self._url.encode(), options, out)  # one that fails says so at every question
        default = self._defaults.get(decision, "").encode()
        status = lib.shmb_pipe_server_add(server, base.encode(), b"llvm", default, 0, out[0])
        if status:
            raise_status(status, _reason(server))

    def _end_compilers(self) -> None:
        # Who waits for a pipe's other end now has one, and is found; nobody else comes once the
        # folder is gone.
        held = [os.open(pipe, os.O_RDWR | os.O_NONBLOCK) for pipe in self.folder.iterdir()]
        self._remove()
        # The second time: who was about to wait. LLVM removes its temporary files at the first
        # signal. Who started these gets it first: clang's driver would write a reproducer of their
        # crash.
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in [
                pid for holder in _holders(self.folder) for pid in self._started_by(holder)
            ]:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            time.sleep(0.1)
        for pipe in held:
            os.close(pipe)

    def _started_by(self, pid: int) -> list[int]:
        """The process, after those between it and the run."""
        chain = [pid]
        with contextlib.suppress(OSError):
            while (parent := int(stat_of(chain[0])[1])) not in (0, 1, self._parent):
                chain.insert(0, parent)
            return chain if parent == self._parent else [pid]
        return [pid]


def _new_folder(command: Sequence[str]) -> Path:
    """A folder that has the same name whenever this command compiles here, because objects may
    record it. While one does, another one has a name of its own."""
    words = hashlib.sha256(os.fsencode("\0".join([os.getcwd(), *command]))).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"shmbridge-{os.getuid()}-{words}")
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        return Path(tempfile.mkdtemp(prefix="shmbridge-"))
    return folder


def _reason(server: Any) -> str:
    text: bytes = ffi.string(lib.shmb_pipe_server_error(server))
    return text.decode(errors="replace")


def _line(decision: str, info: Any) -> str:
    why = ffi.string(info.why).decode(errors="replace") if info.status and info.why else ""
    return f"{decision} {info.asked} {info.defaulted} {info.status} {' '.join(why.split())}\n"


def _holders(folder: Path) -> list[int]:
    """The processes that have a file of this folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            files = [os.readlink(fd) for fd in (process / "fd").iterdir()]
            if any(file.startswith(f"{folder}/") for file in files):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]

"""Hosts for compilers with their own protocol over named pipes.

Each is a module `shmbridge.hosts.SCHEME` with a `PLUGIN`, a subclass of `PipeBackedHost`, or an
entry point of that name in the group "shmbridge.hosts". `Host("SCHEME://…")` creates one. They
differ only in the conversion of bytes to requests, which the C core does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shmbridge import errors
from shmbridge._host.host import Host
from shmbridge._host.request import Request
from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._urls.options import Wait


class PipePair(NamedTuple):
    """A pair of pipes, PATH.in to the compiler and PATH.out from it, for one compiler after
    another."""

    path: str
    protocol: str  # as shmb_pipe_server_add knows it: "frames" or "llvm"
    detail: str  # its SerDes; its default advice


class PipeBackedRequest(Request):
    """A request whose reply goes to a pipe, at once."""

    __slots__ = ()

    def reply(self, *args: Any, **named: Any) -> bool:
        try:
            return super().reply(*args, **named)
        finally:
            self._flush()

    def _fail(self, status: int, text: str) -> bool:
        try:
            return super()._fail(status, text)
        finally:
            self._flush()

    def _flush(self) -> None:
        if not self._host._closed:
            lib.shmb_pipe_server_flush(self._host._server)


def _receive(server: Any, h: Any, timeout_ns: int) -> int:
    key = int(lib.shmb_pipe_server_run(server, h, timeout_ns))
    plugins.raise_carried()  # Ctrl-C while a SerDes of Python was at work
    return key


class PipeBackedHost(Host):
    """A host whose compilers connect through named pipes: a private bridge with a runner for each
    pair of pipes.

    The pipes have mode 0600. Existing pipes of a dead host of this user are reused. All are removed
    when the host closes. slots, request_bytes, advice_bytes, header_bytes: as for shared memory;
    messages must fit. Errors: as `Host`'s; InUseError if a live host has the pipes, InvalidError if
    another file has their name or for an option that pipes do not have, NotPermittedError if
    another user owns them.
    """

    _request_type = PipeBackedRequest
    _private = True

    def __init__(
        self,
        url: str,
        lines: Sequence[PipePair],
        *,
        channels: int | None = None,
        wait: Wait = "block",
        deadline: float | None = None,
        **options: Any,
    ) -> None:
        if channels is not None or wait == "spin":
            raise errors.InvalidError(
                f"{url}: expected neither channels= nor wait='spin': pipes serve one compiler at "
                "a time, and never spin"
            )
        if deadline is not None:
            raise errors.InvalidError(
                f"{url}: expected no deadline=, which pipes do not carry: "
                f"give it to the runner: pipe:///PATH?deadline={deadline:g}"
            )
        name = f"{url.partition(':')[0]}-{os.getpid()}-{secrets.token_hex(4)}"
        super().__init__(name, channels=len(lines), wait="block", **options)
        self._url = url
        self._fifos: list[tuple[Path, int | None]] = []
        self._server = ffi.gc(lib.shmb_pipe_server_new(-1), lib.shmb_pipe_server_free)
        self._receive = partial(_receive, self._server, self._h)
        # Text of numbers is longer than they are.
        limit = 8 * self._plan.request_bytes + self._plan.header_bytes
        with errors.undone_by(self.close):
            for line in lines:
                self._add(line, limit)

    @property
    def runners(self) -> int:
        """How many compilers are connected."""
        return int(lib.shmb_pipe_server_talking(self._server))

    def close(self) -> None:
        """Removes the pipes: connected compilers see their end. Kept arrays stay valid. You may
        call it twice."""
        if self._closed or lib.shmb_host_forked(self._h):
            super().close()
            return
        try:
            for path, inode in self._fifos:
                if _inode(path) == inode:
                    path.unlink(missing_ok=True)
        finally:
            self._hang_up()
            super().close()

    def _hang_up(self) -> None:
        lib.shmb_pipe_server_close(self._server)

    def _add(self, line: PipePair, limit: int) -> None:
        """Makes a pair of pipes, or takes it over, and adds it to the core's server."""
        pair = [Path(f"{line.path}.{end}") for end in ("in", "out")]
        made: list[Path] = []
        try:
            for path in pair:
                if _make(path):
                    made.append(path)
            inodes = [_inode(path) for path in pair]
            words = (line.path.encode(), line.protocol.encode(), line.detail.encode())
            status = lib.shmb_pipe_server_add(self._server, *words, limit, self._connect())
            if None in inodes or inodes != [_inode(path) for path in pair]:
                raise errors.InUseError(
                    f"another host has removed {line.path}.in and .out just now: try again"
                )
            if status:
                errors.raise_status(status, self._why())
        except BaseException as error:
            # Else they are the live host's now.
            if not (isinstance(error, errors.InUseError) and pair[1].exists()):
                for path in made:
                    path.unlink(missing_ok=True)
            raise
        self._fifos += zip(pair, inodes, strict=True)

    def _why(self) -> str:
        return str(ffi.string(lib.shmb_pipe_server_error(self._server)).decode(errors="replace"))

    def _connect(self) -> Any:
        """A runner of the private bridge. It connects in a thread, and is accepted here."""
        # The thread that waits here is the one that computes: a compiler has its own deadline.
        url = f"shm://{self.name}?wait=block&connect_timeout=10&deadline=inf".encode()
        out = ffi.new("shmb_runner **")
        thread = threading.Thread(target=lib.shmb_open, args=(url, ffi.NULL, out), daemon=True)
        thread.start()
        while thread.is_alive():
            lib.shmb_host_receive(self._h, 1_000_000)
        thread.join()
        if lib.shmb_error_message(out[0])[0] != b"\0":
            text = ffi.string(lib.shmb_error_message(out[0])).decode()
            lib.shmb_close(out[0])
            errors.raise_status(lib.SHMB_SYSTEM, text)
        return out[0]


def _inode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_ino
    return None


def _make(path: Path) -> bool:
    """Makes a pipe; False when there is one already, which is left as it is."""
    while True:
        with errors.calling(f"mkfifo {path}"), contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
            return True
        with contextlib.suppress(FileNotFoundError):  # a host that ended just now has removed it
            found = path.lstat()
            break
    if not stat.S_ISFIFO(found.st_mode):
        raise errors.InvalidError(
            f"{path} exists: expected no file, or a named pipe of a dead host"
        )
    if found.st_uid != os.geteuid():
        raise errors.NotPermittedError(
            f"{path} belongs to another user's host: choose another path"
        )
    return False

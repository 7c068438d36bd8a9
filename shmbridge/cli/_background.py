"""Hosts in a separate process: `--background` starts one, and `shmbridge stop` ends it.

A background host listens at a socket in Linux's abstract namespace, named after its key. So the
kernel says whether it lives and which process it is: no file has to be trusted, kept apart or
removed.
"""

import contextlib
import errno
import hashlib
import os
import select
import shlex
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import click

from shmbridge._bridge import names, segment
from shmbridge.cli import _processes
from shmbridge.cli._processes import LOOK, on_signals, reap
from shmbridge.errors import calling, ending

SHOWN = 1 << 20  # bytes of what a model prints while it loads

background_option = click.option(
    "--background",
    is_flag=True,
    help="Return once the host answers. Its output goes to a file; shmbridge stop NAME ends it.",
)


def how_to_end(name: str, background: bool) -> str:
    """For the first line that a host prints."""
    return f"to end it: {f'shmbridge stop {shlex.quote(key(name))}' if background else 'Ctrl-C'}"


def begin(name: str, background: bool) -> Callable[[], None]:
    """Lets signals end this host. In the background it goes on in a new process, whose output goes
    to a file. This one prints what the new one printed and ends: when that calls the function
    returned here, because it answers now, or when it has ended. ClickException: no folder for the
    file."""
    on_signals(signal.default_int_handler)
    if not background:
        return lambda: None
    log_fd, log = _new_log()
    ready, its_ready = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(its_ready)
        sys.exit(_wait(pid, ready, log_fd, log))
    _detach(log_fd, its_ready)
    _listen(name)

    def answers() -> None:
        kept = log.parent / f"{quote(key(name), safe=':')[-200:]}.log"
        click.echo(f"  log     {kept}")
        os.replace(log, kept)
        # BrokenPipeError: who started it is gone, and never learns of it.
        os.write(its_ready, b"\n")
        os.close(its_ready)

    return answers


def end(name: str) -> str | None:
    """Ends the host that was begun at this name; its log. None: there is none, or it has ended.
    ClickException: it cannot be ended from here."""
    with (
        calling(f"cannot reach the host at {key(name)}: socket, connect or getsockopt (AF_UNIX)"),
        socket.socket(socket.AF_UNIX) as life,
    ):
        life.setblocking(False)  # one that does not answer must not hold this command
        try:
            life.connect(_address(name))
        except ConnectionRefusedError:
            return None
        pid, uid, _ = PEER.unpack(life.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        if uid != os.geteuid() or pid <= 0:
            raise click.ClickException(
                f"the host at {key(name)} belongs to user {uid} or to another container: stop it "
                "there"
            )
        log = ""
        with contextlib.suppress(OSError):
            log = os.readlink(f"/proc/{pid}/fd/1")
        poll = select.poll()
        poll.register(life, 0)  # it hangs up when the process ends
        _processes.end([pid], lambda seconds: bool(poll.poll(seconds * 1000)))
    segment.gc()  # of one that had to be killed
    segment.remove_dead(key(name))
    return log if log.endswith(".log") else ""  # not of one that never answered


# ---- The socket ----

PEER = struct.Struct("3i")  # struct ucred: process, user, group


def _address(name: str) -> bytes:
    """Of a user's host. Containers may share a network namespace, and with it these addresses, so
    the bridge's directory tells them apart. An abstract address has at most 107 bytes."""
    folder = Path(key(name)).parent if key(name).startswith("/") else names.SHM
    place = (folder.stat().st_dev, folder.stat().st_ino) if folder.exists() else 0
    which = hashlib.sha256(f"{os.geteuid()} {place} {key(name)}".encode(errors="replace"))
    return f"\0shmbridge-{which.hexdigest()}".encode()


def _listen(name: str) -> None:
    """Makes this process the background host of a name, until it ends. ClickException: another one
    is."""
    with calling("--background needs socket, bind and listen (AF_UNIX)"):
        life = socket.socket(socket.AF_UNIX)
        try:
            life.bind(_address(name))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise click.ClickException(
                f"a background host of {key(name)} runs already: choose another name, or end it: "
                f"shmbridge stop {shlex.quote(key(name))}"
            ) from error
        life.listen()
    os.register_at_fork(after_in_child=life.close)  # a child is not the host


# ---- The log ----


def _new_log() -> tuple[int, Path]:
    # A relative path would be another folder for `stop` than for `serve`, so it does not count.
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = (state if state.is_absolute() else Path.home() / ".local/state") / "shmbridge"
        folder.mkdir(parents=True, exist_ok=True)
        log_fd, log = tempfile.mkstemp(dir=folder)
    except (OSError, RuntimeError) as error:
        raise click.ClickException(
            f"no folder for the background host's log: {error}: set XDG_STATE_HOME to a writable "
            "folder"
        ) from error
    return log_fd, Path(log)


def key(name: str) -> str:
    """A host's key: its bridge's name, or its URL without options."""
    url = name.partition("?")[0]
    return url if "://" in url.removeprefix("shm://") else names.bridge_name(name)


# ---- The process that starts it ----


def _wait(pid: int, ready: int, log_fd: int, log: Path) -> int:
    """Until the host answers or has ended: this command's exit status."""
    ended = None
    try:
        while ended is None:
            # The pipe's end says nothing: what the model forked may hold it.
            if select.select([ready], [], [], LOOK)[0] and os.read(ready, 1):
                click.echo(os.pread(log_fd, SHOWN, 0), nl=False)
                return 0
            ended = reap(pid)
    except BaseException:
        _processes.end([pid], lambda seconds: reap(pid, seconds) is not None)
        log.unlink(missing_ok=True)
        raise
    click.echo(os.pread(log_fd, SHOWN, 0), err=True, nl=False)
    log.unlink()
    if ended < 0:
        click.echo(f"Error: {ending(ended)} ended the host before it answered", err=True)
    return ended if ended > 0 else 1


# ---- The process of its own ----


def _detach(log: int, ready: int) -> None:
    """Detaches from the terminal and closes inherited descriptors."""
    with calling("setsid"):
        os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != ready:
            with contextlib.suppress(OSError):
                os.close(fd)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

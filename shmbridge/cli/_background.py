"""Hosts in a separate process: `--background` starts one, and `shmbridge stop` ends it."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import click

from shmbridge._bridge import segment
from shmbridge.cli._signals import handle
from shmbridge.cli._text import ending

# Milliseconds for the question under way, since the compiler's next one finds no host anyway; for
# everything else; for the kernel.
PATIENCE = 1000, 3000, 3000
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
    handle(signal.default_int_handler)
    if not background:
        return lambda: None
    folder = _folder()
    log_fd, log = tempfile.mkstemp(dir=folder)
    ready, its_ready = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(its_ready)
        sys.exit(_wait(pid, ready, log_fd, Path(log)))
    _detach(log_fd, its_ready)

    def answers() -> None:
        kept = _file(name, ".log")
        click.echo(f"  log     {kept}")
        os.replace(log, kept)
        note = Path(f"{log}.pid")
        note.write_text(f"{os.getpid()} {_began(os.getpid())}")
        note.replace(_file(name, ".pid"))
        # BrokenPipeError: who started it is gone, and never learns of it.
        os.write(its_ready, b"\n")
        os.close(its_ready)

    return answers


def end(name: str) -> Path | None:
    """Ends the host that was begun at this name; its log. None: there is none, or it has ended."""
    note = _file(name, ".pid")
    process = _open(note)
    if process is None:
        return None
    try:
        end_all([process], PATIENCE)
    finally:
        os.close(process)
    note.unlink(missing_ok=True)
    segment.gc()  # of one that had to be killed
    return _file(name, ".log")


# ---- Which files ----


def _folder() -> Path:
    folder = (
        Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "shmbridge"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} is not writable")
    except (OSError, RuntimeError) as error:
        raise click.ClickException(
            f"no folder for the background host's log: {error}: set XDG_STATE_HOME to a writable "
            "folder"
        ) from error
    return folder


def key(name: str) -> str:
    """A host's key: its URL without options, or its bare name."""
    return name.partition("?")[0].removeprefix("shm://")


def _file(name: str, suffix: str) -> Path:
    return _folder() / f"{quote(key(name), safe=':')}{suffix}"


# ---- The process that starts it ----


def _wait(pid: int, ready: int, log_fd: int, log: Path) -> int:
    """Until the host answers or has ended: this command's exit status."""
    process, poll = os.pidfd_open(pid), select.poll()
    poll.register(ready, select.POLLIN)
    # A pipe's end would not do: what the model forked may hold it.
    poll.register(process, select.POLLIN)
    try:
        answers = ready in dict(poll.poll()) and os.read(ready, 1)
    except BaseException:
        end_all([process], PATIENCE)
        os.waitpid(pid, 0)
        log.unlink(missing_ok=True)
        raise
    if answers:
        click.echo(os.pread(log_fd, SHOWN, 0), nl=False)
        return 0
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    click.echo(os.pread(log_fd, SHOWN, 0), err=True, nl=False)
    log.unlink()
    if status < 0:
        click.echo(f"Error: {ending(status)} ended the host before it answered", err=True)
    return status if status > 0 else 1


# ---- The process of its own ----


def _detach(log: int, ready: int) -> None:
    """Detaches from the terminal and closes inherited descriptors."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != ready:
            with contextlib.suppress(OSError):
                os.close(fd)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _began(pid: int) -> str:
    """The start time of a process, in clock ticks since boot, which with the id is unique. "":
    there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _open(note: Path) -> int | None:
    """A descriptor of the process in such a file, if it still runs."""
    try:
        pid, began = note.read_text().split()
        process = os.pidfd_open(int(pid))
    except (OSError, ValueError):
        return None
    if _began(int(pid)) == began:
        return process
    os.close(process)
    return None


def end_all(processes: Sequence[int], patience: Sequence[int]) -> None:
    """Ends processes by their descriptors: by SIGTERM, by another one, then by SIGKILL. patience:
    milliseconds for each of the three."""
    left, poll = set(processes), select.poll()
    for process in processes:
        poll.register(process, select.POLLIN)
    steps = zip((signal.SIGTERM, signal.SIGTERM, signal.SIGKILL), patience, strict=True)
    for number, milliseconds in steps:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
        until = time.monotonic() + milliseconds / 1000
        while left and (seconds := until - time.monotonic()) > 0:
            for process, _ in poll.poll(seconds * 1000):
                left.remove(process)
                poll.unregister(process)

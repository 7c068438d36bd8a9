"""What `shmbridge run` watches over: a policy in a process of its own, named pipes and their relay, and the compiler."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click

from shmbridge import segment
from shmbridge._native import ffi, lib
from shmbridge.errors import ShmbridgeError, raise_status
from shmbridge.host import Host, Model

# Room for what LLVM asks, its longest names included, from many threads at once: a tenth of Host's own.
CHANNELS = 32
REQUEST_BYTES, ADVICE_BYTES, HEADER_BYTES = 1 << 16, 1 << 12, 1 << 14
GRACE = 0.5  # seconds for a policy to end
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
FOREVER_NS = 2**62


@dataclass
class Count:
    """The decisions of one kind that compilers asked for, how many of them took a default, and why the first one did."""

    decision: str
    asked: int = 0
    defaulted: int = 0
    why: str = ""

    def add(self, asked: int, defaulted: int, why: str) -> None:
        """Counts another channel's."""
        self.asked += asked
        self.defaulted += defaulted
        self.why = self.why or why


def _fork(child: Callable[[], None]) -> int:
    """The id of a process that runs `child` and nothing else: much quicker to have than another Python."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        child()
        status = 0
    except click.ClickException as error:
        error.show()
    except (ShmbridgeError, OSError) as error:
        click.ClickException(" ".join(str(error).split())).show()
    except KeyboardInterrupt:
        pass
    except SystemExit as error:
        print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _reap(pid: int, life: int) -> None:
    """Tells a child that its time has come, and sees that it ends."""
    os.close(life)
    killer = threading.Timer(GRACE, os.kill, (pid, signal.SIGKILL))
    killer.start()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    killer.cancel()
    killer.join()  # before the id can be another's
    os.waitpid(pid, 0)


# ---- The policy ----


class Policy:
    """A host in a process of its own, at `name`, which answers with the model that `load` gives there.

    Raises SystemExit when it does not come to serve; it has then said why on stderr.
    """

    def __init__(self, load: Callable[[], Model]) -> None:
        self.name = f"run-{os.getpid()}-{secrets.token_hex(4)}"
        ready, its_ready = os.pipe()
        its_life, self._life = os.pipe()

        def child() -> None:
            os.close(self._life)
            self._serve(load, its_ready, its_life)

        self._pid = _fork(child)
        os.close(its_ready)
        os.close(its_life)
        try:
            began = os.read(ready, 1)
        except BaseException:
            os.kill(self._pid, signal.SIGKILL)
            self.close()
            raise
        finally:
            os.close(ready)
        if not began:
            self.close()
            raise SystemExit(1)

    def _serve(self, load: Callable[[], Model], ready: int, life: int) -> None:
        """In the child: serves until `life` ends. What the model prints goes to stderr: stdout is the compiler's."""
        hosts: list[Host] = []

        def end() -> None:
            os.read(life, 1)
            threading.Timer(
                GRACE, os._exit, (1,)
            ).start()  # perhaps nobody is left to kill a model that hangs or loads
            for host in hosts:
                host.close()

        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in _heeded():
            signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=end, daemon=True).start()
        model = load()
        for number in FORWARDED:  # the supervisor's concern: the compiler may still want advice
            signal.signal(number, signal.SIG_IGN)
        with Host(
            self.name,
            channels=CHANNELS,
            request_bytes=REQUEST_BYTES,
            advice_bytes=ADVICE_BYTES,
            header_bytes=HEADER_BYTES,
        ) as host:
            hosts.append(host)
            os.write(ready, b"\n")
            host.serve(model)
        atexit._run_exitfuncs()

    def close(self) -> None:
        """Ends it, and removes what it leaves below /dev/shm when it was killed."""
        _reap(self._pid, self._life)
        segment.remove_dead(self.name)


# ---- Named pipes ----


class Pipes:
    """A folder with a pair of named pipes for each decision, and the relay between them and a host's runners.

    A compiler whose pipe ends spins for ever: so, should this process be killed, a guard ends those that have a pipe open, and
    removes the folder.
    """

    environment: Mapping[str, str] = {}  # nothing that a compiler must know

    def __init__(self, decisions: Sequence[str], url: str, defaults: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shmbridge-"))
        self.decisions = decisions
        its_life, life = os.pipe()

        def child() -> None:
            os.close(life)
            _guard(self.folder, its_life)

        self._guard, self._life = _fork(child), life
        os.close(its_life)
        self._relay = lib.shmb_relay_new()
        self._thread: threading.Thread | None = None
        try:
            for decision in decisions:
                self._add(decision, url, defaults.get(decision, ""))
        except BaseException:
            self.close()
            raise
        self._thread = threading.Thread(target=lib.shmb_relay_run, args=(self._relay, FOREVER_NS))
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # they are for the main thread
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _add(self, decision: str, url: str, default: str) -> None:
        base = self.base(decision)
        for end in (".in", ".out"):
            os.mkfifo(base + end, 0o600)
        out = ffi.new("shmb_runner **")
        lib.shmb_open(url.encode(), ffi.NULL, out)  # one that fails says so at every question
        status = lib.shmb_relay_add(
            self._relay, base.encode(), b"llvm", default.encode(), 0, out[0]
        )
        if status:
            raise_status(
                status, ffi.string(lib.shmb_relay_error(self._relay)).decode(errors="replace")
            )

    def base(self, decision: str) -> str:
        """The path of a decision's pipes, without .in and .out."""
        return str(self.folder / decision)

    def counts(self) -> list[Count]:
        """What was asked so far."""
        info, counts = ffi.new("shmb_line_info *"), []
        for line, decision in enumerate(self.decisions):
            lib.shmb_relay_info(self._relay, line, info)
            why = ffi.string(info.why).decode(errors="replace") if info.status and info.why else ""
            counts.append(Count(decision, info.asked, info.defaulted, why))
        return counts

    def stop(self) -> None:
        """No compiler is left: ends the relay."""
        if self._thread:
            lib.shmb_relay_stop(self._relay)
            self._thread.join()

    def close(self) -> None:
        """Stops, and removes the folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        _reap(self._guard, self._life)
        lib.shmb_relay_free(self._relay)


def _guard(folder: Path, life: int) -> None:
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    os.read(life, 1)
    if not folder.exists():
        return
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(fd).startswith(f"{folder}/") for fd in (process / "fd").iterdir()):
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


# ---- The compiler ----


def _heeded() -> list[signal.Signals]:
    """Those that nohup and its like have not told this process to ignore."""
    return [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]


class Signals:
    """While the block runs, SIGINT, SIGTERM and SIGHUP go to the compiler; before there is one, they end the block."""

    def __init__(self) -> None:
        self.compiler: subprocess.Popen[bytes] | None = None
        self.caught = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.compiler is None:
            self.caught = number
            raise KeyboardInterrupt
        self.compiler.send_signal(number)

    @contextlib.contextmanager
    def forwarded(self) -> Iterator[Signals]:
        """The block."""
        old = {number: signal.signal(number, self._handle) for number in _heeded()}
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

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """The compiler's exit status; negative: the signal that ended it. It gets SIGTERM when this process is killed."""
        libc, parent = ctypes.CDLL(None), os.getpid()

        def in_child() -> None:
            for number in _heeded():
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, FORWARDED
        )  # until there is someone to forward them to
        try:  # what make's job server and others pass on stays open
            self.compiler = subprocess.Popen(
                command, env=environment, close_fds=False, preexec_fn=in_child
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self.compiler.wait()


def die_of(number: int) -> None:
    """Ends this process by a signal, without a core dump of its own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL has no handlers
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

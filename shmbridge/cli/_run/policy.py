"""The processes of `shmbridge run`: a policy in a separate process, and the compiler."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import os
import re
import resource
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from shmbridge._bridge import segment
from shmbridge.cli._text import one_line
from shmbridge.errors import DeadlineError, ShmbridgeError

if TYPE_CHECKING:
    from shmbridge._host.host import Host
    from shmbridge._host.service import Model
    from shmbridge.logs import LogWriter

# Room for what LLVM asks: 41 features are 3 KB of names and types, the largest observation is 5 KB,
# and names of functions in C++ can be as long again. With 8 channels it is 450 KB of /dev/shm,
# which containers have 64 MB of for all compilers at once.
REQUEST_BYTES, ADVICE_BYTES, HEADER_BYTES = 3 << 12, 1 << 9, 5 << 10
GRACE = 0.5  # seconds for a policy to end
LOAD_SECONDS = 60.0  # for a policy to load, or its deadline if that is longer
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
# what a policy says when it serves; else why it does not, in one write of TEXT_BYTES at most
SERVING = b"\n"
TEXT_BYTES = 4096


def fork(child: Callable[[], None]) -> int:
    """The id of a process that only runs `child`: much faster to start than another Python."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        child()
        status = 0
    except KeyboardInterrupt:
        pass
    except SystemExit as error:  # as Python itself would
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if status and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 255)


def reap(pid: int, life: int) -> None:
    """Asks a child to end, and waits until it has."""
    os.close(life)
    killer = threading.Timer(GRACE, os.kill, (pid, signal.SIGKILL))
    killer.start()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    killer.cancel()
    killer.join()  # before the id can be another's
    os.waitpid(pid, 0)


# ---- The policy ----


def ending(ended: os.waitid_result | None) -> str:
    """How the policy's process ended: by itself with a status, or by a signal."""
    assert ended
    number = ended.si_status
    names = {signal.value: signal.name for signal in signal.Signals}
    how = (
        f"exit {number}"
        if ended.si_code == os.CLD_EXITED
        else names.get(number, f"signal {number}")
    )
    return f"the policy process ended ({how})"


def in_words_of_run(text: str, name: str) -> str:
    """An error at the bridge `name` for users of `shmbridge run`, who know neither that name nor
    Host."""

    def options(match: re.Match[str]) -> str:
        keys = re.findall("(channels|request_bytes)=", match[0])
        return f"({', '.join('--' + key.replace('_', '-') for key in keys)})"

    text = re.sub(r"\(Host\([^)]*\)[^)]*\)", options, text)
    return re.sub(f'(?:the host of )?"{name}"(?:: the host)?', "the policy", text)


class Policy:
    """A host in a separate process, at `name`, that answers with the model of `load`, and records
    in the log; room: Host's `channels` and `request_bytes`.

    Raises ShmbridgeError with the reason if it does not start to serve; DeadlineError if it loads
    for too long.
    """

    def __init__(
        self,
        load: Callable[[], tuple[Model, LogWriter | None]],
        deadline: float | None,
        **room: Any,
    ) -> None:
        self.name = f"run-{os.getpid()}-{secrets.token_hex(4)}"
        ready, its_ready = os.pipe()
        its_life, self._life = os.pipe()

        def child() -> None:
            os.close(self._life)
            self._serve(load, room, its_ready, its_life)

        self._pid = fork(child)
        os.close(its_ready)
        os.close(its_life)
        limit = max(LOAD_SECONDS, deadline or 0)
        try:
            if not select.select([ready], [], [], None if limit == math.inf else limit)[0]:
                raise DeadlineError(
                    f"the policy did not load within {limit:g} s: make it load faster, or use a "
                    "longer --deadline"
                )
            said = os.read(ready, TEXT_BYTES)
            why = said.decode(errors="replace") or f"{ending(self._ended())} while it loaded"
        except BaseException:
            os.kill(self._pid, signal.SIGKILL)
            self.close()
            raise
        finally:
            os.close(ready)
        if said != SERVING:
            self.close()
            raise ShmbridgeError(in_words_of_run(why, self.name))

    def _serve(
        self,
        load: Callable[[], tuple[Model, LogWriter | None]],
        room: Mapping[str, Any],
        ready: int,
        life: int,
    ) -> None:
        """In the child: serves until `life` ends. What the model prints goes to stderr: stdout is
        the compiler's."""
        hosts: list[Host] = []

        def end() -> None:
            os.read(life, 1)
            threading.Timer(GRACE, give_up).start()
            for host in hosts:
                host.close()

        def give_up() -> None:  # perhaps nobody is left to kill a model that hangs or loads
            for host in hosts:  # nor to remove what it would leave
                unlink(host)
            os._exit(1)

        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in _heeded():
            signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=end, daemon=True).start()
        try:
            from shmbridge._host.host import Host, unlink

            model, log = load()
            # LLVM asks one question at a time
            host = Host(
                self.name, slots=2, advice_bytes=ADVICE_BYTES, header_bytes=HEADER_BYTES, **room
            )
        except Exception as error:
            os.write(ready, one_line(error).encode()[:TEXT_BYTES])
            return
        for number in FORWARDED:  # the supervisor's concern: the compiler may still want advice
            signal.signal(number, signal.SIG_IGN)
        with host:
            hosts.append(host)
            os.write(ready, SERVING)
            host.serve(model, record=log)
        atexit._run_exitfuncs()

    def explain(self, why: str) -> str:
        """Why a question got no advice, for the user who chose the policy."""
        of_bridge = self.name in why or why.startswith("the host ")
        until = time.monotonic() + GRACE  # it may have closed its bridge and be about to end
        while of_bridge and not self._ended(os.WNOHANG) and time.monotonic() < until:
            time.sleep(0.01)
        ended = self._ended(os.WNOHANG)
        return ending(ended) if of_bridge and ended else in_words_of_run(why, self.name)

    def _ended(self, how: int = 0) -> os.waitid_result | None:
        """How its process ended; waits for that, unless told WNOHANG."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | how)

    def close(self) -> None:
        """Ends it, and removes what it leaves below /dev/shm when it was killed."""
        reap(self._pid, self._life)
        segment.remove_dead(self.name)


# ---- The compiler ----


def _heeded() -> list[signal.Signals]:
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

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> int:
        """The compiler's exit status; negative: the signal that ended it. It gets SIGTERM when this
        process is killed."""
        libc, parent = ctypes.CDLL(None), os.getpid()

        def in_child() -> None:
            for number in _heeded():
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        # Until there is someone to forward them to.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:  # what make's job server and others pass on stays open
            self.compiler = subprocess.Popen(
                command,
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                close_fds=False,
                preexec_fn=in_child,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self.compiler.wait()


class Streams:
    """The compiler's standard streams, kept so that it can run a second time."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}

    def keep(self, reads: bool, writes: bool) -> None:
        """Reads all of the standard input, and holds the output back, where the compiler uses
        them."""
        if reads:
            self._keep("stdin")
            with open(self._kept["stdin"], "wb", closefd=False) as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
        if writes:
            self._keep("stdout")

    def keep_errors(self) -> None:
        """The compiler has printed its warnings already: holds them back from now on."""
        self._keep("stderr")

    def _keep(self, name: str) -> None:
        self._kept[name] = os.memfd_create(f"shmbridge-{name}")

    def rewound(self) -> dict[str, int]:
        """For `Signals.run`: the input from its start, and empty outputs."""
        for name, file in self._kept.items():
            os.lseek(file, 0, os.SEEK_SET)
            if name != "stdin":
                os.truncate(file, 0)
        return self._kept

    def deliver(self, status: int) -> None:
        """Writes the output that was held back, and the errors if the compiler failed."""
        for name, stream in ("stdout", sys.stdout), ("stderr", sys.stderr):
            if name in self._kept and (name == "stdout" or status):
                os.lseek(self._kept[name], 0, os.SEEK_SET)
                with open(self._kept[name], "rb", closefd=False) as copy:
                    shutil.copyfileobj(copy, stream.buffer)
                stream.flush()


def die_of(number: int) -> None:
    """Ends this process by a signal, without another core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL has no handlers
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

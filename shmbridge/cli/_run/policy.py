"""The policy of `shmbridge run`: a host in a forked process, which loads the model."""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shmbridge._bridge import segment
from shmbridge.cli._run.compiler import FORWARDED, heeded
from shmbridge.cli._text import ending, one_line
from shmbridge.errors import DeadlineError, ShmbridgeError, printable

# Numpy takes longer to import than a small file to compile: only what loads a policy has it.
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
FORK = multiprocessing.get_context("fork")  # much faster to start than another Python


def end(process: multiprocessing.process.BaseProcess, life: Connection) -> None:
    """Asks a child to end, by closing a pipe that it reads, and waits until it has."""
    life.close()
    process.join(GRACE)
    process.kill()
    process.join()


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
    in a training log; room: Host's `channels` and `request_bytes`.

    Raises ShmbridgeError with the reason if it does not start to serve; DeadlineError if it loads
    for too long.
    """

    def __init__(
        self, load: Callable[[], Model], deadline: float | None, record: Path | None, **room: Any
    ) -> None:
        self.name = f"run-{os.getpid()}-{secrets.token_hex(4)}"
        ready, its_ready = FORK.Pipe(duplex=False)
        its_life, self._life = FORK.Pipe(duplex=False)
        child = (load, record, room, its_ready, its_life)
        self._process = FORK.Process(target=self._serve, args=child)
        self._process.start()
        its_ready.close()
        its_life.close()
        limit = max(LOAD_SECONDS, deadline or 0)
        try:
            if not ready.poll(None if limit == math.inf else limit):
                raise DeadlineError(
                    f"the policy did not load within {limit:g} s: make it load faster, or use a "
                    "longer --deadline"
                )
            why = self._refusal(ready)
        except BaseException:
            self._process.kill()  # what still loads would only end after GRACE
            self.close()
            raise
        finally:
            ready.close()
        if why:
            self.close()
            raise ShmbridgeError(in_words_of_run(why, self.name))

    def _refusal(self, ready: Connection) -> str:
        """Why it does not serve; "": it does."""
        try:
            return str(ready.recv())
        except EOFError:
            self._process.join()
            return f"{self._ending()} while it loaded"

    def _serve(
        self,
        load: Callable[[], Model],
        record: Path | None,
        room: Mapping[str, Any],
        ready: Connection,
        life: Connection,
    ) -> None:
        """In the child: serves until `life` ends. What the model prints goes to stderr: stdin and
        stdout are the compiler's."""
        hosts: list[Host] = []

        def end_with_run() -> None:
            life.poll(None)
            for host in hosts:
                host.close()
            time.sleep(GRACE)  # perhaps nobody is left to kill a model that hangs or loads,
            for host in hosts:  # nor to remove what it would leave
                unlink(host)
            os._exit(1)

        self._life.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        # Else multiprocessing would wait for threads that the model leaves.
        threading._shutdown = lambda: None  # type: ignore[attr-defined]
        for number in heeded():
            signal.signal(number, signal.SIG_DFL)
        with contextlib.ExitStack() as stack:
            try:
                threading.Thread(target=end_with_run, daemon=True).start()
                from shmbridge._host.host import Host, unlink

                model = load()
                log = stack.enter_context(open_log(record)) if record else None
                # LLVM asks one question at a time
                host = Host(
                    self.name, slots=2, advice_bytes=ADVICE_BYTES, header_bytes=HEADER_BYTES, **room
                )
                hosts.append(stack.enter_context(host))
            except Exception as error:
                ready.send(one_line(error))
                return
            for number in FORWARDED:  # the supervisor's concern: the compiler may still want advice
                signal.signal(number, signal.SIG_IGN)
            ready.send("")
            host.serve(model, record=log)
        atexit._run_exitfuncs()

    def explain(self, line: str) -> str:
        """A line of a report whose reason is for the user who chose the policy."""
        *counts, why = line.split(" ", 4)
        if counts[-1] == "0":
            return line
        of_bridge = self.name in why or why.startswith("the host ")
        if of_bridge:  # it may have closed its bridge and be about to end
            self._process.join(GRACE)
        ended = of_bridge and self._process.exitcode is not None
        why = f"{self._ending()}\n" if ended else in_words_of_run(why, self.name)
        return " ".join([*counts, why])

    def _ending(self) -> str:
        return f"the policy process ended ({ending(self._process.exitcode or 0)})"

    def close(self) -> None:
        """Ends it, and removes what it leaves below /dev/shm when it was killed."""
        end(self._process, self._life)
        segment.remove_dead(self.name)


def open_log(path: Path) -> LogWriter:
    """A training log, which warns on stderr."""
    from shmbridge.logs import LogWriter

    return LogWriter(
        path, warn=lambda text: click.echo(printable(f"shmbridge: {path}: {text}"), err=True)
    )

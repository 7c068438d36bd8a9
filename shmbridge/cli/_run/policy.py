"""The policy of `shmbridge run`: a host in a forked process, which loads the model."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shmbridge._bridge import segment
from shmbridge._llvm import compilers
from shmbridge._native import lib
from shmbridge.cli._run.child import GRACE, Child
from shmbridge.cli._text import log_to, one_line
from shmbridge.errors import ModelError, printable

# Numpy takes longer to import than a small file to compile: only what loads a policy has it.
if TYPE_CHECKING:
    from shmbridge._host.host import Host
    from shmbridge._host.service import Model
    from shmbridge.logs import LogWriter

# Room for what LLVM asks: 41 features are 3 KB of names and types, the largest observation is 5 KB,
# and names of functions in C++ can be as long again. With 8 channels it is 450 KB of /dev/shm,
# which containers have 64 MB of for all compilers at once. LLVM asks one question at a time.
ROOM: dict[str, Any] = {
    "slots": 2,
    "request_bytes": 3 << 12,
    "advice_bytes": 1 << 9,
    "header_bytes": 5 << 10,
}
LOAD_SECONDS = 60.0  # for a policy to load, or its deadline if that is longer
# What a runner says of a host that has closed its bridge and may be about to end.
GONE = lib.SHMB_HOST_GONE, lib.SHMB_CLOSED, lib.SHMB_NO_HOST, lib.SHMB_DROPPED


class Policy(Child):
    """A host at `name`, with so many channels, that answers with the model of `load`, and records
    in a training log. Errors: as `Child`'s."""

    def __init__(
        self,
        load: Callable[[], Model],
        deadline: float | None,
        record: Path | None,
        channels: int,
    ) -> None:
        self.name = f"run-{os.getpid()}-{secrets.token_hex(4)}"
        self._load, self._record, self._channels = load, record, channels
        super().__init__("policy", self._serve, max(LOAD_SECONDS, deadline or 0))
        self.name = self.said

    def _serve(self, works: Callable[[str], None], life: Connection) -> None:
        hosts: list[Host] = []

        def end_with_run() -> None:
            life.poll(None)
            for host in hosts:
                host.close()
            time.sleep(GRACE)  # perhaps nobody is left to kill a model that hangs or loads,
            for host in hosts:  # nor to remove what it would leave
                host._segment.unlink()
            os._exit(1)

        threading.Thread(target=end_with_run, daemon=True).start()
        from shmbridge._host.host import Host

        class PrivateHost(Host):
            _private = True

        with ExitStack() as stack:
            try:
                model = self._load()
                record = stack.enter_context(open_log(self._record)) if self._record else None
            except Exception as error:  # not of a host for which there is no room
                raise ModelError(one_line(error)) from error
            host = PrivateHost(self.name, channels=self._channels, **ROOM)
            hosts.append(stack.enter_context(host))
            works(host.name)
            host.serve(model, record=record)

    def explain(self, line: str) -> str:
        """A line of a report; where the policy's process has ended, how."""
        *counts, status, _ = line.split(" ", 4)
        how = self.ended(GRACE) if int(status) in GONE else ""
        return " ".join([*counts, status, f"{how}\n"]) if how else line

    def close(self, grace: float = GRACE) -> None:
        """Ends it, and removes what it leaves when it was killed."""
        super().close(grace)
        segment.remove_dead(self.name)


def open_log(path: Path) -> LogWriter:
    """A training log, which warns on stderr."""
    from shmbridge.logs import LogWriter

    return LogWriter(
        path, warn=lambda text: click.echo(printable(f"shmbridge: {path}: {text}"), err=True)
    )


def load_policy(onnx: Path | None, function: str | None, verbose: bool) -> Model:
    """The policy, in its own process."""
    # Without -v the summary counts errors: a build's output shows no traceback.
    log_to(logging.StreamHandler() if verbose else logging.NullHandler(), verbose)
    from shmbridge.cli._model import OnnxModel, load_python

    model = OnnxModel(onnx) if onnx else load_python(str(function), "--host")
    return lambda request: compilers.rounded(model(request))

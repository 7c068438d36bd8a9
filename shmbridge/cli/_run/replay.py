"""`run --plan`: how the compiler asks a plan, and what of it fitted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmbridge._llvm.plan import read, url_of

if TYPE_CHECKING:
    from shmbridge._host.service import Model
    from shmbridge._llvm.preload import Count


class Replay:
    """A plan, and an unnamed file in which plan:// notes which of its decisions were made."""

    def __init__(self, path: Path, source: Path) -> None:
        self._path, self._source = path, source
        self._plan = read(path)
        self._made = os.memfd_create("shmbridge-plan")
        file = os.open(path, os.O_RDONLY)
        self.url = f"{url_of(file)}?report=/proc/{os.getpid()}/fd/{self._made}"

    @property
    def changes(self) -> int:
        """How many decisions the plan changes."""
        return len(self._plan.decisions)

    def model(self) -> Model:
        """The plan as a policy that can be recorded."""
        from shmbridge._runner.runner import Runner, connect

        runners: dict[int, Runner] = {}  # by the compiler's

        def model(request: Any) -> Any:
            if request.runner not in runners:
                runners[request.runner] = connect(self.url)
            return runners[request.runner].evaluate(request)

        return model

    def _fits(self) -> int:
        """How many decisions found their question."""
        return os.pread(self._made, self.changes, 0).count(b"1")

    def summary(self, counts: Iterable[Count]) -> str:
        """How much of the plan fitted."""
        made = f"{self._path}: made {self._fits()} of {self.changes} changes"
        return f"{made}; the compiler asked {sum(count.asked for count in counts)} times"

    def misfit(self, counts: Iterable[Count]) -> str:
        """What did not fit, and why. "": all did."""
        if self._fits() == self.changes:
            return ""
        changed = hashlib.sha256(self._source.read_bytes()).hexdigest() != self._plan.sha256
        why = f"{self._source} has changed" if changed else "the arguments or the compiler differ"
        return f"{self.summary(counts)}: {why} since it was tuned: tune it again"

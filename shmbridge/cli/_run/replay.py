"""The policy of `run --plan`: a plan's decisions, otherwise LLVM's own."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmbridge._llvm.plan import DEFAULT, Site, Sites, hashed_names, read
from shmbridge.errors import ShmbridgeError

if TYPE_CHECKING:
    from shmbridge._host.service import Model
    from shmbridge.logs import LogWriter


class Replay:
    """Answers with a plan, in the policy's process, and counts for this one, in an unnamed file,
    how many of its decisions found their question."""

    def __init__(self, path: Path, source: Path) -> None:
        self._path, self._source = path, source
        self._plan = read(path)
        self._counts = os.memfd_create("shmbridge-plan")

    @property
    def changes(self) -> int:
        """How many decisions the plan changes."""
        return len(self._plan.decisions)

    def load(self, open_log: Callable[[], LogWriter | None]) -> tuple[Model, LogWriter | None]:
        """The model and its log, as `Policy` wants them."""
        sites: defaultdict[int, Sites] = defaultdict(Sites)  # by runner
        found = set[Site]()
        asked = 0

        def model(request: Any) -> int:
            nonlocal asked
            if DEFAULT not in request:
                raise ShmbridgeError(f"expected {DEFAULT} of LLVM 22 or later, found none")
            values = [int(request[name][0]) for name in hashed_names(request)]
            site = sites[request.runner].next(values)
            decision = self._plan.decisions.get(site)
            asked += 1
            if decision is not None:
                found.add(site)
            os.pwrite(self._counts, f"{len(found):20}{asked:20}".encode(), 0)
            return int(request[DEFAULT][0]) if decision is None else decision.advice

        return model, open_log()

    def _counted(self) -> tuple[int, int]:
        """Decisions that found their question, and all questions."""
        text = os.pread(self._counts, 40, 0)
        return int(text[:20] or 0), int(text[20:] or 0)

    def summary(self) -> str:
        """How much of the plan fitted."""
        found, asked = self._counted()
        made = f"{self._path}: made {found} of {self.changes} changes"
        return f"{made}; the compiler asked {asked} times"

    def misfit(self) -> str:
        """What did not fit, and why. "": all did."""
        if self._counted()[0] == self.changes:
            return ""
        changed = hashlib.sha256(self._source.read_bytes()).hexdigest() != self._plan.sha256
        why = f"{self._source} has changed" if changed else "the arguments or the compiler differ"
        return f"{self.summary()}: {why} since it was tuned: tune it again"

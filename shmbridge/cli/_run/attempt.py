"""A compilation that asked the policy: what came of it, and what the other compilations of its
build should know."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass

from shmbridge import _config
from shmbridge._llvm import compilers
from shmbridge._llvm.preload import Count, counts_of, read_report
from shmbridge._native import ffi, lib
from shmbridge.errors import DeadlineError, ShmbridgeError, printable


def summary(counts: Iterable[Count], decisions: Iterable[str]) -> str:
    """How many decisions got advice, of each kind, and why the others did not."""
    texts, advised, asked = [], 0, 0
    for decision in decisions:
        mine = [count for count in counts if count.decision == decision]
        n, lacking = sum(c.asked for c in mine), sum(c.defaulted for c in mine)
        why = next((f": {printable(' '.join(c.why.split()))}" for c in mine if c.why), "")
        texts.append(f"{decision} {n - lacking} of {n}{why}")
        advised, asked = advised + n - lacking, asked + n
    return f"the policy made {advised} of {asked} decisions ({'; '.join(texts)})"


@dataclass
class Attempt:
    """A compilation that asked the policy."""

    status: int  # the compiler's; negative: the signal that ended it
    counts: list[Count]
    loaded: bool  # the preloaded library got into the compiler, or was not needed

    def failure(self, compiler: str, defaults: Container[str]) -> str:
        """Why its output is not what the policy decided; "" if it is. defaults: decisions with a
        default advice of the user's."""
        if self.status and not self.loaded:
            return f"{compiler} failed and had not loaded {_config.preload()}: try --pipes"
        lacking = [c for c in self.counts if c.defaulted and c.decision not in defaults]
        return summary(self.counts, dict.fromkeys(c.decision for c in lacking)) if lacking else ""

    @property
    def late(self) -> bool:
        """The policy missed a deadline."""
        return any(count.status == DeadlineError.status for count in self.counts)


def launched(compiler: str) -> Attempt | None:
    """The attempt that cdef/launcher has made and leaves to this process, if there is one."""
    ended = os.environ.pop("SHMBRIDGE_RUN_ENDED", None)
    if ended is None:
        return None
    report, status = map(int, ended.split())
    text = read_report(report)
    os.close(report)
    return Attempt(
        os.waitstatus_to_exitcode(status), counts_of(text), compilers.loaded(text, compiler)
    )


class Build:
    """What the compilations of a build know of each other, by the policy that they share."""

    def __init__(self, policy: str, url: str | None) -> None:
        self._policy = policy.encode()
        self._url = ffi.NULL if url is None else url.encode()

    def check(self) -> None:
        """Raises ShmbridgeError when asking is pointless: there is no host, or it was late a moment
        ago."""
        why = ffi.new("char[]", lib.SHMB_WHY_BYTES)
        if not lib.shmb_build_asks(self._policy, self._url, why):
            raise ShmbridgeError(ffi.string(why).decode(errors="replace"))

    def is_first_failure(self, late: bool) -> bool:
        """Notes that the policy failed a compilation, and says whether it is the first of this
        build. late: it missed a deadline."""
        return bool(lib.shmb_build_failed(self._policy, late))

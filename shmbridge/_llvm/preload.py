"""How an unmodified compiler asks through a runner inside it: the preloaded library, configured by
the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from shmbridge import _config
from shmbridge._llvm import compilers
from shmbridge._native import ffi, lib
from shmbridge.errors import ShmbridgeError


@dataclass
class Count:
    """The decisions of one kind: how many compilers asked for, how many took a default, and why the
    first one did."""

    decision: str
    asked: int = 0
    defaulted: int = 0
    status: int = 0  # the first one's
    why: str = ""

    def line(self) -> str:
        """As a report has it."""
        why = " ".join(self.why.split())
        return f"{self.decision} {self.asked} {self.defaulted} {self.status} {why}\n"


def environment(url: str, report: str, defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that make a compiler ask at this URL, and append to the file `report` what it
    was asked. Errors: ShmbridgeError."""
    library = _config.preload()
    if not library.exists() or set(str(library)) & set(" :"):
        raise ShmbridgeError(
            f"expected {library}, in a path without spaces or colons: reinstall shmbridge, or pass "
            "--pipes"
        )
    old = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return {
        "LD_PRELOAD": ":".join([str(library), *(path for path in old if path != str(library))]),
        "SHMBRIDGE_LLVM_BASE": compilers.CHANNEL_BASE,
        "SHMBRIDGE_LLVM_URL": url,
        "SHMBRIDGE_LLVM_DEFAULTS": ",".join(
            f"{key}={value}" for key, value in (defaults or {}).items()
        ),
        "SHMBRIDGE_LLVM_REPORT": report,
    }


def questions_left(limit: int) -> bytes:
    """The content of the file that $SHMBRIDGE_LLVM_LIMIT names."""
    return limit.to_bytes(8, sys.byteorder)


def counts_of(report: str) -> list[Count]:
    """What a report says was asked, for each channel that was closed."""
    found = []
    for line in report.splitlines():
        decision, asked, defaulted, status, why = line.split(" ", 4)
        if decision in compilers.DECISIONS:
            found.append(Count(decision, int(asked), int(defaulted), int(status), why))
    return found


def unnamed_file() -> int:
    """The descriptor of a file without a name. Errors: ShmbridgeError."""
    file = int(lib.shmb_unnamed_file())
    if file < 0:
        raise ShmbridgeError(f"no unnamed file in memory or $TMPDIR: {os.strerror(ffi.errno)}")
    return file


class Preload:
    """Channels that are runners inside the compiler: the environment that configures them, and two
    unnamed files: the compilers' reports, and the number of remaining questions. The compiler ends
    where a decision gets neither advice nor a default."""

    def __init__(self, url: str, defaults: Mapping[str, str], limit: int | None) -> None:
        self._report = unnamed_file()
        self._limit = unnamed_file()
        self.environment = environment(url, f"/proc/{os.getpid()}/fd/{self._report}", defaults)
        self.environment["SHMBRIDGE_LLVM_ENDS"] = "1"
        if limit is not None:
            os.write(self._limit, questions_left(limit))
            self.environment["SHMBRIDGE_LLVM_LIMIT"] = f"/proc/{os.getpid()}/fd/{self._limit}"

    def base(self, decision: str) -> str:
        """The path of a decision's channel, without .in and .out. No file is there."""
        return f"{compilers.CHANNEL_BASE}.{decision}"

    def report(self) -> str:
        """What the library has reported so far."""
        return os.pread(self._report, os.fstat(self._report).st_size, 0).decode(errors="replace")

    def close(self) -> None:
        """Removes the files."""
        os.close(self._report)
        os.close(self._limit)

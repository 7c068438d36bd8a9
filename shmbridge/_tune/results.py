"""What the compilations of a search scored, kept in a file, so that a search can be resumed."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shmbridge._llvm.plan import Site
from shmbridge.errors import InvalidError

FAILED = math.inf  # the score of a compilation that fails


class Call(NamedTuple):
    """What a question was about."""

    default: int  # LLVM's own decision
    caller: str = ""  # not known: everything is one function
    callee: str = ""


@dataclass(frozen=True, eq=False)
class Result:
    """A compilation. Sets of call sites are bits of a number: see `Results.bits`."""

    asked: int  # at these sites
    flipped: int  # of these, where LLVM's own decision was reversed
    score: float  # or FAILED
    parts: Mapping[str, float]  # of the score, by function
    calls: Mapping[int, Call]  # by the site's bit, where they differ from the file's first


class Results:
    """The results of one module, in a file of JSON lines that only one process uses at a time. A
    kill loses the last line at most.

    Errors: InvalidError (another process uses it, or it is another file), OSError.
    """

    def __init__(self, path: Path) -> None:
        self.sites: list[Site] = []
        self._calls: list[Call] = []  # of the sites, when they were first met
        self._bits: dict[Site, int] = {}
        self._known: list[Result] = []
        self._file = open(path, "a+b")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load(path)
        except BlockingIOError:
            self._file.close()
            raise InvalidError(
                f"{path}: another search of this command is running: wait for its end"
            ) from None
        except BaseException:
            self._file.close()
            raise

    def _load(self, path: Path) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        os.truncate(self._file.fileno(), whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                sites, asked, flipped, score, parts = json.loads(line)
                calls = {Site(int(value, 16), n): Call(*call) for value, n, *call in sites}
                first = self._known[0].parts if self._known else {}
                known = Result(
                    int(asked, 16),
                    int(flipped, 16),
                    float(score),
                    {**first, **parts},
                    self._met(calls),
                )
                if (known.asked | known.flipped) >> len(self.sites):
                    raise ValueError("a site that no line names")
            except (ValueError, TypeError) as error:
                raise InvalidError(
                    f"{path}:{number}: expected a result of shmbridge tune, found {error}: "
                    "remove the file"
                ) from None
            self._known.append(known)

    def _met(self, calls: Mapping[Site, Call]) -> dict[int, Call]:
        """Knows these sites from now on. The calls that are not as at first."""
        others: dict[int, Call] = {}
        for site, call in calls.items():
            if site not in self._bits:
                self._bits[site] = 1 << len(self.sites)
                self.sites.append(site)
                self._calls.append(call)
            elif call != self._calls[at := self._bits[site].bit_length() - 1]:
                others[at] = call
        return others

    def calls(self, result: Result) -> dict[Site, Call]:
        """What a compilation asked about."""
        known = enumerate(zip(self.sites, self._calls, strict=True))
        return {s: result.calls.get(i, call) for i, (s, call) in known if result.asked >> i & 1}

    def bits(self, sites: Iterable[Site]) -> int:
        """A set of known sites as a number."""
        found = 0
        for site in sites:
            found |= self._bits[site]
        return found

    def sites_of(self, bits: int) -> list[Site]:
        """The sites of such a number."""
        return [site for i, site in enumerate(self.sites) if bits >> i & 1]

    def find(self, flipped: int) -> Result | None:
        """The result of a compilation that decided the same as one with these flips.

        Decisions follow from the questions before them. So it is the one whose flips are exactly
        these, as far as it was asked.
        """
        return next(
            (known for known in self._known if flipped & known.asked == known.flipped), None
        )

    def add(
        self,
        asked: Mapping[Site, Call],
        flipped: Iterable[Site],
        score: float,
        parts: Mapping[str, float],
    ) -> Result:
        """Stores a result."""
        before = len(self.sites)
        others = self._met(asked)
        found = Result(self.bits(asked), self.bits(flipped), score, parts, others)
        named = [
            (f"{self.sites[i].hash:x}", self.sites[i].n, *others.get(i, self._calls[i]))
            for i in (*others, *range(before, len(self.sites)))
        ]
        first = self._known[0].parts if self._known else {}
        names = sorted(first.keys() | parts.keys())
        changed = {n: parts.get(n, 0) for n in names if parts.get(n, 0) != first.get(n, 0)}
        line = json.dumps([named, f"{found.asked:x}", f"{found.flipped:x}", score, changed])
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        self._known.append(found)
        return found

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._known)

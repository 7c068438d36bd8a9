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
    alike: int  # a hash of what the question says of the call and the callee: see `Results.group`
    doubt: int  # how far LLVM's estimate was from the other decision
    caller: str = ""  # not known: everything is one function
    callee: str = ""


@dataclass(frozen=True, eq=False)
class Result:
    """A compilation. Sets of call sites are bits of a number: see `Results.bits`."""

    asked: int  # at these sites
    flipped: int  # of these, where LLVM's own decision was reversed
    wanted: int  # what to reverse: sites and groups
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
        self._groups = 0
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
                sites, asked, flipped, wanted, score, parts = json.loads(line)
                calls = {Site(int(value, 16), n): Call(*call) for value, n, *call in sites}
                first = self._known[0].parts if self._known else {}
                known = Result(
                    int(asked, 16),
                    int(flipped, 16),
                    int(wanted, 16),
                    float(score),
                    {**first, **parts},
                    self._met(calls),
                )
                if (known.asked | known.flipped | known.wanted) >> len(self.sites):
                    raise ValueError("a site that no line names")
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
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
                group = self.group(call)
                for each in (site,) if group in self._bits else (group, site):
                    self._bits[each] = 1 << len(self.sites)
                    self.sites.append(each)
                    self._calls.append(call)
                self._groups |= self._bits[group]
            elif call != self._calls[at := self._bits[site].bit_length() - 1]:
                others[at] = call
        return others

    @staticmethod
    def group(call: Call) -> Site:
        """All questions that are alike, as one site. To reverse it is to reverse each of them; one
        that is also reversed alone is as before. A site with the same hash is n from 1."""
        return Site(call.alike, 0)

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

    def find(self, wanted: int) -> Result | None:
        """The result of a compilation that decided the same as one with these flips.

        Decisions follow from the questions before them. So it is the one whose flips are exactly
        these, as far as it was asked.
        """
        same = (k for k in self._known if not (wanted ^ k.wanted) & (k.asked | self._groups))
        return next(same, None)

    def add(
        self,
        asked: Mapping[Site, Call],
        flipped: Iterable[Site],
        wanted: int,
        score: float,
        parts: Mapping[str, float],
    ) -> Result:
        """Stores a result."""
        before = len(self.sites)
        others = self._met(asked)
        found = Result(self.bits(asked), self.bits(flipped), wanted, score, parts, others)
        named = [
            (f"{site.hash:x}", site.n, *call)
            for site, call in asked.items()
            if (at := self._bits[site].bit_length() - 1) >= before or at in others
        ]
        first = self._known[0].parts if self._known else {}
        names = sorted(first.keys() | parts.keys())
        changed = {n: parts.get(n, 0) for n in names if parts.get(n, 0) != first.get(n, 0)}
        sets = [f"{bits:x}" for bits in (found.asked, found.flipped, wanted)]
        line = json.dumps([named, *sets, score, changed])
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        self._known.append(found)
        return found

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._known)

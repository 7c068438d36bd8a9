"""Episodes of n compilers: C (_fastpath.Steps) steps them, and hands back what is unusual."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from shmbridge._host.host import Host
from shmbridge._host.passing import channel_of
from shmbridge._host.receiving import SLICE_NS
from shmbridge._host.request import Request
from shmbridge._native import lib
from shmbridge.envs._pool import CompilerPool, CompilerSource
from shmbridge.envs._rows import Rows
from shmbridge.errors import (
    ClosedError,
    DeadlineError,
    InvalidError,
    MismatchError,
    RunnerGoneError,
)

NOBODY = 60.0  # seconds that a reset without a timeout waits while no compiler is connected
WORKERS_SLICE_NS = 5_000_000
MUTE = 10  # compilers in a row that asked nothing
IDLE, OPEN, SENT = range(3)  # as in steps.c
UNKNOWN, ADVICE_ALONE, TELLS_STEPS = range(3)

LEFT = "the compiler died or left in mid-episode"
ANOTHER = "the compiler began another episode in the midst of this one"


class Stepping(Rows):
    """The episodes of n compilers, one after another in each row."""

    def __init__(
        self,
        compilers: CompilerPool,
        n: int,
        timeout: float | None,
        actions: tuple[int, int] | None,
        strict: bool = False,
    ) -> None:
        if n < 1:
            raise InvalidError(f"expected one environment or more, found {n}")
        each = 1 if compilers._workers is None else compilers._workers.channels
        need, found = (compilers._envs + n) * each, compilers.host._plan.channels
        if need > found:
            raise InvalidError(
                f"expected a host with channels={need} or more, found {found}: an environment's compiler takes {each}"
            )
        super().__init__(compilers.host._address, n, strict)
        self.compilers, self.timeout = compilers, timeout
        self._host, self._workers = compilers.host, compilers._workers
        # A worker's end is looked for more often: it ends the episode.
        shortest = WORKERS_SLICE_NS if self._workers is not None else SLICE_NS
        self._slice = shortest if timeout is None else min(shortest, timeout * 1e9)
        self._first = compilers._envs
        compilers._envs += n
        self.core.defers = self._workers is not None or not compilers._direct
        if actions is not None:
            self.core.first_action, self.core.actions = actions
        self._begins: list[int] = []  # rows that wait for their first request
        self._labels: dict[int, str] = {}  # of workers, by row
        self._chosen: set[int] = set()  # rows whose program the caller chose by its name
        self._carried: dict[int, float] = {}  # rewards of a drive that is done, in a compilation
        self._parts: dict[int, dict[str, float]] = {}  # the agents' own parts of these
        self._told = np.zeros(n, bool)  # compilations that told a reward
        self._mute: dict[int, int] = {}
        self._later: list[tuple[int, int]] = []  # rows and keys, of compilers with several runners

    @classmethod
    def over(
        cls,
        given: CompilerPool | Host | str,
        n: int,
        timeout: float | None,
        actions: tuple[int, int] | None,
        *,
        workers: CompilerSource | None,
        options: Mapping[str, Any],
        strict: bool = False,
    ) -> Stepping:
        """Of compilers, or of a host that it makes of a URL, and closes where this fails."""
        made = (
            given
            if isinstance(given, CompilerPool)
            else CompilerPool(given, workers=workers, **options)
        )
        try:
            return cls(made, n, timeout, actions, strict)
        except BaseException:
            if isinstance(given, str):
                made.close()
            raise

    # ---- Begin and end ----

    def check(self, options: Mapping[str, Any] | None) -> None:
        """Are these options of reset known, and what they say? InvalidError otherwise."""
        if self._workers is not None:
            self._workers.check(options)
        elif options:
            raise InvalidError(
                f"reset(options=...) has {', '.join(map(repr, options))}: "
                "expected none, since compilers come by themselves; those that workers= starts can be told a module"
            )

    def begin(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None] = (),
        options: Sequence[Mapping[str, Any] | None] = (),
    ) -> None:
        """Episodes are to begin in these rows, at the next `wait`. Those under way are given up."""
        if self._host._closed:
            raise ClosedError(f"the host at {self._host.url} is closed")
        if lib.shmb_host_forked(self._host._h):
            self._host._ends(-lib.SHMB_FORKED)
        for row, seed, chosen in zip_longest(rows, seeds, options):
            self.give_up(row)
            if self._workers is not None:
                self._start(row, seed, chosen)
            self._begins.append(row)
        self.core.begins = len(self._begins)

    def _start(self, row: int, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Has the workers start a compiler. A seed is for this episode and those after it."""
        assert self._workers is not None
        (self._chosen.add if options else self._chosen.discard)(row)
        label = self._workers.begin(self._first + row, seed=seed, options=options)
        self._labels[row] = label
        self.compilers._labels[label] = (self, row)

    def give_up(self, row: int) -> None:
        """Ends the row's episode, if there is one, which its compiler gets as an error. Before its
        first action it is as good as a new one, and waits to begin again."""
        state, key, _, drives = self.core.row(row)
        if state == OPEN and drives == UNKNOWN and self._workers is None:
            self.compilers._held[channel_of(key)] = key
        elif state == OPEN:
            self.compilers._refuse(key)
        if row in self._begins:
            self._begins.remove(row)
            self.core.begins = len(self._begins)
        self._free(row)

    def _free(self, row: int) -> None:
        channels = self.core.channels(row)
        self.core.end(row)
        for channel, _ in channels:
            self.compilers._let_go(channel)
        label = self._labels.pop(row, None)
        if label is not None and self._workers is not None:
            self.compilers._labels.pop(label, None)
            self._workers.end(label)
        self._carried.pop(row, None)
        self._parts.pop(row, None)
        self._told[row] = False
        self._later = [each for each in self._later if each[0] != row]

    def _over(self, row: int, terminated: bool, info: dict[str, Any]) -> None:
        """The episode ended without its compiler's word."""
        self.rewards[row] = self._carried.get(row, 0.0)
        self.terminated[row], self.truncated[row] = terminated, not terminated
        self.outcomes[row] = info
        self.core.ended += 1
        self._free(row)

    # ---- Step ----

    def send(self, row: int, action: Any) -> None:
        """An action that C does not send. Errors as `Request.reply`'s."""
        _, key, knows, _ = self.core.row(row)
        request = self.compilers._read(key)
        if request is None:  # its end shows when its answer is waited for
            self.core.sent(row)
            return
        several = dict(action) if isinstance(action, Mapping) else {}
        try:
            if knows:
                request.reply(**several) if several else request.reply(action)
            else:
                request.reply(**several, learner=True) if several else request.reply(learner=action)
        finally:
            if request._open:
                self.compilers._lay_down(request)
            else:
                self.core.sent(row)

    def send_all(self, actions: Any) -> None:
        """Its own of n actions to each row that waits for one.

        Args:
            actions: An array of n rows, or a dict of such.

        Raises:
            InvalidError, TypeError: One is none of the actions, or these are not n; nothing was done.
        """
        direct = self.compilers._direct
        if direct and type(actions) is np.ndarray and self.core.send(actions) is None:
            return
        if not isinstance(actions, Mapping):
            if np.ndim(actions) == 0:
                raise TypeError(f"expected {self.n} actions, found {actions!r} alone")
            actions = np.ascontiguousarray(actions)
            wrong = self.core.send(actions) if direct else -1
            if wrong is None:
                return
            self._check(actions, wrong)
        for row in range(self.n):
            if self.core.row(row)[0] == OPEN:
                several = isinstance(actions, Mapping)
                one = (
                    {name: each[row] for name, each in actions.items()} if several else actions[row]
                )
                self.send(row, one)

    def _check(self, actions: Any, wrong: int) -> None:
        first, count = self.core.first_action, self.core.actions
        if len(actions) != self.n:
            raise InvalidError(f"expected {self.n} actions, found {actions.shape}")
        if count and wrong < 0:
            whole = actions.ndim == 1 and actions.dtype.kind in "iu"
            fits = (actions >= first) & (actions < first + count) if whole else [False]
            wrong = -1 if np.all(fits) else int(np.argmin(fits))
        if wrong >= 0:
            raise InvalidError(
                f"action {actions[wrong]!r} of environment {wrong}: expected an integer from {first} to {first + count - 1}"
            )

    def wait(self) -> None:
        """Until no row's action is under way, and none waits for its first request.

        Raises:
            DeadlineError: No compiler began an episode within the timeout.
            ClosedError: The host is closed.
        """
        self._wait()
        if self._workers is not None:
            self._told |= (self.rewards != 0) & ~(self.terminated | self.truncated)

    def _wait(self) -> None:
        if self._later:
            self._look_later()
        if self._begins:
            self._seat() if self._workers is None else self.compilers._come_early(self)
        came = self._receive(self._slice)
        if came is None:
            return
        start = time.monotonic()
        alone, until = start + NOBODY, start + (math.inf if self.timeout is None else self.timeout)
        while came is not None:
            now = time.monotonic()
            if came >= 0:
                self._host._idle_since = now
                self.compilers._came(came, self)
            else:
                self.compilers._check_open(came)
                self._look_for_the_dead()
                if self._host.runners:
                    alone = now + NOBODY
                if now >= until or (until == math.inf and self._begins and now > alone):
                    self._time_out()
            came = self._receive(max(0, min(self._slice, (until - now) * 1e9)))

    def _receive(self, ns: float) -> int | None:
        """A key at which to look, or -shmb_status; None: nothing is waited for."""
        if self.compilers._direct:
            return self.core.wait(int(ns))
        if not (self.core.under_way or self.core.begins):
            return None
        return self._host._receive(self._host._source, int(ns))

    def _time_out(self) -> None:
        for row in range(self.n):
            if self.core.row(row)[0] == SENT:
                self._over(
                    row, False, {"error": f"the compiler asked nothing for {self.timeout} s"}
                )
        if self._begins:
            for row in list(self._begins):
                self.give_up(row)
            raise DeadlineError(
                f"no compiler has been connected to {self._host.url} for {NOBODY:.0f} s: start one, or say timeout="
                if self.timeout is None
                else f"no compiler began an episode at {self._host.url} within {self.timeout} s"
            )

    def _look_for_the_dead(self) -> None:
        nobody = not self._host.runners  # a pipe's channel stays when its compiler leaves
        for row in range(self.n):
            if self._workers is not None:
                self._look_for_outcome(row)
            elif self.core.row(row)[0] == SENT:
                for channel, there in self.core.channels(row):
                    if nobody or not there:
                        self.lose(row, channel)

    def _look_for_outcome(self, row: int) -> None:
        assert self._workers is not None
        label = self._labels.get(row)
        if label is None or self.core.row(row)[0] == OPEN:
            return
        outcome = self._workers.outcome(label, 0)
        if outcome is None:
            return
        if row not in self._begins:
            ok = outcome.kind == "ok"
            error = {} if ok else {"error": f"the compiler failed: {outcome.kind}"}
            parts = {"rewards": self._parts[row]} if self._parts.get(row) else {}
            if ok and not (self._told[row] or self._carried.get(row)):
                self._carried[row], parts = self._workers.reward(label), {}
            self._over(row, ok, {**_told(outcome), **error, **parts})
            return
        self._mute[row] = mute = self._mute.get(row, 0) + 1
        self.give_up(row)
        if mute > MUTE or row in self._chosen:
            self._mute.clear()
            raise InvalidError(
                f"compilations in a row that asked nothing: {mute}; "
                f"the last: {outcome.kind}: try {outcome.command}\n{outcome.stderr}"
            )
        self.begin([row])
        self.compilers._come_early(self)

    # ---- For the pool ----

    def has(self, row: int, channel: int) -> bool | None:
        """Is the channel's runner still there? None: the channel is not the row's any more."""
        return dict(self.core.channels(row)).get(channel)

    def lose(self, row: int, channel: int) -> None:
        """A row's runner has gone. A worker's compilation goes on without it."""
        if self._workers is not None:
            self.core.disown(channel)
            self.compilers._let_go(channel)
        elif self.core.row(row)[3] == ADVICE_ALONE:  # as a compilation ends that asks for advice
            self._over(row, True, {})
        else:
            self._over(row, False, {"error": LEFT})

    def begin_with(self, key: int) -> bool:
        """The first request of an episode, for a row that waits for any compiler."""
        if not self._begins:
            return False
        row = self._begins[0]
        if not self.core.begin(row, key):
            request = self.compilers._read(key)
            if request is None or "step" in request:
                self.core.end(row)
                if request is not None:
                    self.compilers._lay_down(request)
                return False
            if not self._read(row, key, request):
                return True
        self._begun(row)
        self.compilers._owners[channel_of(key)] = (self, row)
        return True

    def _begun(self, row: int) -> None:
        self._begins.remove(row)
        self.core.begins = len(self._begins)
        self._mute.pop(row, None)

    def _seat(self) -> None:
        """Gives rows that wait for it what came before they did."""
        while self._begins and (key := self.compilers._next_held()) is not None:
            self.begin_with(key)

    def join(self, row: int, key: int) -> None:
        """A runner of the row's own compiler asks for the first time."""
        if row not in self._begins:
            self.core.own(row, key)
            self.look(row, key)
            return
        if not self.core.begin(row, key):
            request = self.compilers._read(key)
            if request is None or not self._read(row, key, request):
                return
        self._begun(row)

    def look(self, row: int, key: int) -> None:
        """A request of a row that has an episode."""
        if self.core.take(row, key):
            return
        state, _, _, drives = self.core.row(row)
        request = self.compilers._read(key)
        if request is None:
            return
        if state != SENT:  # a second runner of a compilation, or one that does not wait
            self.compilers._lay_down(request)
            self._later.append((row, key))
        elif "step" not in request and drives == TELLS_STEPS and self._workers is None:
            self.compilers._lay_down(request)
            self._over(row, False, {"error": ANOTHER})
            self.compilers._held[channel_of(key)] = key
        else:
            self._read(row, key, request)

    def _look_later(self) -> None:
        later, self._later = self._later, []
        for row, key in later:
            if self.has(row, channel_of(key)):
                self.look(row, key)

    def _read(self, row: int, key: int, request: Request) -> bool:
        """What a request says, into the row. False: it cannot be the row's, and has been refused."""
        begun = self.core.row(row)[0] == SENT
        try:
            over = self.read(row, request)
        except (MismatchError, RunnerGoneError, TypeError, ValueError) as error:
            request.fail(error)
            if begun:
                self._over(row, False, {"error": str(error)})
            else:
                self.core.end(row)
            return False
        self.rewards[row] += self._carried.pop(row, 0.0)
        parts = self._parts.pop(row, {})
        if parts:
            own = self.infos[row].get("rewards", {})
            self.infos[row]["rewards"] = {
                who: parts.get(who, 0.0) + own.get(who, 0.0) for who in {**parts, **own}
            }
        if not over:
            drives = "step" in request
            self.compilers._lay_down(request)
            kind = TELLS_STEPS if drives else ADVICE_ALONE if begun else UNKNOWN
            self.core.place(row, key, drives, kind)
            return True
        request.reply(0)
        if self._workers is not None:  # the compilation goes on, and may drive again
            self._carried[row] = self.rewards.item(row)
            agent = self.agents.item(row)
            alone = {self.name_of(agent): self._carried[row]} if agent >= 0 else {}
            self._parts[row] = self.infos[row].get("rewards", alone)
        else:
            self.core.ended += 1
            self._free(row)
        return True


def _told(outcome: Any) -> dict[str, Any]:
    names = ("module", "kind", "exit", "stderr", "command", "scores")
    return {name: getattr(outcome, name) for name in names}

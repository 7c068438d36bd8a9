"""Episodes of n compilers: C (_fastpath.Steps) steps them, and hands back requests whose runners it
does not know, or that have what it does not copy."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge._episodes.episode import Episode
from shmbridge._episodes.pool import CompilerPool
from shmbridge._episodes.rows import Rows
from shmbridge._fastpath import BEGINS, OPEN
from shmbridge._host.receiving import SLICE_NS
from shmbridge.errors import ClosedError, DeadlineError, InvalidError, undone_by
from shmbridge.training import Workers

NOBODY = 60.0  # seconds that a reset without a timeout waits while no compiler is connected
WORKERS_SLICE_NS = 5_000_000


class Stepping(Rows):
    """The episodes of n compilers, one after another in each row."""

    def __init__(
        self,
        compilers: CompilerPool | Host | str,
        n: int,
        timeout: float | None,
        actions: tuple[int, int] | None,
        *,
        workers: Workers | None,
        options: Mapping[str, Any],
    ) -> None:
        if n < 1:
            raise InvalidError(f"expected one environment or more, found {n}")
        self._owns_pool = not isinstance(compilers, CompilerPool)
        self.pool = (
            compilers
            if isinstance(compilers, CompilerPool)
            else CompilerPool(compilers, workers=workers, **options)
        )
        self.channels = channels = self.pool._channels
        self.workers, self.timeout = channels.workers, timeout
        with undone_by(self.pool.close) if isinstance(compilers, str) else nullcontext():
            first = channels.reserve(n)
            super().__init__(channels.loop.address, n)
            self.episodes = [Episode(self, row, channels, first + row) for row in range(n)]
            # A worker's end is looked for more often: it ends the episode.
            shortest = SLICE_NS if self.workers is None else WORKERS_SLICE_NS
            self.slice = shortest if timeout is None else min(shortest, timeout * 1e9)
            self.core.compilations = self.workers is not None
            self.core.direct = channels.loop.direct
            if actions is not None:
                self.core.first_action, self.core.actions = actions

    # ---- Begin and end ----

    def check(self, options: Mapping[str, Any] | None) -> None:
        """Are these options of reset known, and what they say? InvalidError otherwise."""
        if self.workers is not None:
            self.workers.check(options)
        elif options:
            raise InvalidError(
                f"reset(options=...) has {', '.join(map(repr, options))}: expected none, since "
                "compilers connect by themselves; only with workers= can you select a module"
            )

    def begin(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None] = (),
        options: Sequence[Mapping[str, Any] | None] = (),
    ) -> None:
        """Lets episodes begin in these rows at the next `wait`, and abandons those under way."""
        self.channels.loop.check()
        for row, seed, chosen in zip_longest(rows, seeds, options):
            self.episodes[row].begin(seed, chosen)

    def begin_with(self, key: int) -> bool:
        """The first request of an episode, for a row that waits for any compiler."""
        if not self.core.begins:
            return False
        return next(each for each in self.episodes if each.now.state == BEGINS).look(key)

    def close(self) -> None:
        """Abandons the episodes, and closes the pool unless others share it."""
        for each in self.episodes:
            each.give_up()
        if self._owns_pool:
            self.pool.close()

    # ---- Step ----

    def send_all(self, actions: Any) -> None:
        """Sends each row that waits for an action its own.

        Args:
            actions: An array of n rows, or a dict of such.

        Raises:
            InvalidError, TypeError: One is none of the actions, or these are not n; nothing was
                done.
        """
        direct = self.channels.loop.direct
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
        several = isinstance(actions, Mapping)
        for row, episode in enumerate(self.episodes):
            if episode.now.state == OPEN:
                episode.send(
                    {name: each[row] for name, each in actions.items()} if several else actions[row]
                )

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
                f"action {actions[wrong]!r} of environment {wrong}: "
                f"expected an integer from {first} to {first + count - 1}"
            )

    def wait(self) -> None:
        """Waits until each row that sent an action or began has its next request.

        Raises:
            DeadlineError: No compiler began an episode within the timeout.
            ClosedError: The host is closed.
        """
        if self.core.begins:
            self._assign_held()
        came = self.core.wait(int(self.slice), self.channels.loop.receive)
        if came is None:
            return
        start = time.monotonic()
        alone, until = start + NOBODY, start + (math.inf if self.timeout is None else self.timeout)
        while came is not None:
            now = time.monotonic()
            if came >= 0:
                self.channels.dispatch(came, self.begin_with)
            elif self.channels.loop.ends(came):
                raise ClosedError(f"the host at {self.channels.host.url} is closed")
            else:
                nobody = not self.channels.host.runners  # a pipe's channel outlives its compiler
                for each in self.episodes:
                    each.look_for_the_dead(nobody)
                self._assign_held()
                alone = alone if nobody else now + NOBODY
                if now >= until or (until == math.inf and self.core.begins and now > alone):
                    self._time_out()
            left = int(max(0, min(self.slice, (until - now) * 1e9)))
            came = self.core.wait(left, self.channels.loop.receive)

    def _assign_held(self) -> None:
        """Lets waiting rows begin with requests that came before they waited."""
        held = self.channels.held
        for key in list(held):
            if self.core.begins and key in held:  # no other of its channel has begun an episode
                del held[key]
                self.channels.dispatch(key, self.begin_with)

    def _time_out(self) -> None:
        for each in self.episodes:
            each.time_out(self.timeout)
        waiting = [each for each in self.episodes if each.now.state == BEGINS]
        for each in waiting:
            each.give_up()
        if waiting:
            url = self.channels.host.url
            raise DeadlineError(
                f"no compiler has been connected to {url} for {NOBODY:.0f} s: "
                "start one, or pass timeout="
                if self.timeout is None
                else f"no compiler began an episode at {url} within {self.timeout} s for "
                f"{len(waiting)} of {len(self.episodes)}: start another, or pass timeout="
            )

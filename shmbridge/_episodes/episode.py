"""One row's episodes: their beginnings and ends, and what C does not copy."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from shmbridge import Ragged, Request
from shmbridge._episodes.pool import Channels
from shmbridge._episodes.rows import Rows
from shmbridge._fastpath import (
    ADVICE_ALONE,
    ANOTHER,
    BEGINS,
    ENDED,
    FOREIGN,
    OPEN,
    SENT,
    TAKEN,
    UNKNOWN,
    WRONG,
)
from shmbridge._host.request import detach
from shmbridge._values import tensor
from shmbridge.errors import InvalidError, MismatchError, RunnerGoneError

# What a request has besides the observation, for C; and "reward.NAME", where several agents ask
# through one runner.
REPORT = ("agent", "reward", "done", "truncated", "step")
SILENT = 10  # compilers in a row that asked nothing

LEFT = "the compiler died or disconnected during the episode"
NEXT = "the compiler began another episode during this one"


class State(NamedTuple):
    state: int
    key: int  # of the request that waits for an action; -1: there is none
    announced: bool  # the compiler knows that there is a learner
    reports: int  # rewards?
    rewarded: bool  # one other than 0


class Episode:
    """A row's episodes, one after another.

    Args:
        rows: The arrays.
        row: Which of their rows.
        channels: The host's channels, which know their episodes.
        number: The environment's, for the workers.
    """

    def __init__(self, rows: Rows, row: int, channels: Channels, number: int) -> None:
        self.rows, self.row, self.channels, self.number = rows, row, channels, number
        self.workers = channels.workers
        self.label = ""  # its worker's
        self.chosen = False  # the caller chose the program by its name
        self.before: dict[str, Any] = {}  # the info of the last drive, in a compilation of several
        self.silent = 0  # compilers in a row that asked nothing

    @property
    def now(self) -> State:
        return State(*self.rows.core.row(self.row))

    # ---- Begin and end ----

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Lets an episode begin at the next wait, and abandons one that is under way."""
        self.give_up()
        self.silent = 0
        self._start(seed, options)

    def _start(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Has the workers start a compiler. A seed is for this episode and those after it."""
        if self.workers is not None:
            self.chosen = bool(options)
            self.label = self.workers.begin(self.number, seed=seed, options=options)
            self.channels.expect(self.label, self)
        self.rows.core.move(self.row, BEGINS)

    def give_up(self) -> None:
        """Ends the episode; its compiler gets an error. One without an action yet is kept for the
        next episode instead."""
        now = self.now
        if now.state == OPEN and now.reports == UNKNOWN and self.workers is None:
            self.channels.hold(now.key)
        elif now.state == OPEN:
            self.channels.reject(self.channels.read(now.key))
        self._free(False)

    def _free(self, over: bool) -> None:
        owned = self.rows.core.channels(self.row)
        self.rows.core.end(self.row, over)
        for channel, _ in owned:
            self.channels.let_go(channel)
        if self.label and self.workers is not None:
            self.channels.forget(self.label)
            self.workers.end(self.label)
        self.label, self.before = "", {}

    def _over(self, terminated: bool, info: dict[str, Any]) -> None:
        """The episode ended, but its compiler did not report that."""
        rows, row = self.rows, self.row
        rows.terminated[row], rows.truncated[row] = terminated, not terminated
        rows.outcomes[row] = info
        self._free(True)

    # ---- Step ----

    def send(self, action: Any) -> None:
        """An action that C does not send. Errors as `Request.reply`'s."""
        now = self.now
        request = self.channels.read(now.key)
        if request is None:  # its end shows when its answer is waited for
            self.rows.core.move(self.row, SENT)
            return
        several = dict(action) if isinstance(action, Mapping) else {}
        try:
            if now.announced:
                request.reply(**several) if several else request.reply(action)
            else:
                request.reply(**several, learner=True) if several else request.reply(learner=action)
        finally:
            if not detach(request):
                self.rows.core.move(self.row, SENT)

    def time_out(self, seconds: float | None) -> None:
        if self.now.state == SENT:
            self._over(False, {"error": f"the compiler asked nothing for {seconds} s"})

    def look_for_the_dead(self, nobody: bool) -> None:
        """Ends the episode if its compiler has died. nobody: no compiler is connected."""
        if self.workers is not None:
            self._look_for_outcome()
        elif self.now.state == SENT:
            for channel, there in self.rows.core.channels(self.row):
                if nobody or not there:
                    self.lose(channel)

    def _look_for_outcome(self) -> None:
        assert self.workers is not None
        state = self.now.state
        if not self.label or state == OPEN:
            return
        outcome = self.workers.outcome(self.label, 0)
        if outcome is None:
            return
        if state == BEGINS:
            self._start_another(outcome)
            return
        ok, before = outcome.kind == "ok", self.before
        info = {name: getattr(outcome, name) for name in OUTCOME}
        if not ok:
            why = f": {before['error']}" if "error" in before else ""
            info["error"] = f"the compiler failed: {outcome.kind}{why}"
        if ok and not self.now.rewarded:
            self.rows.rewards[self.row] = self.workers.reward(self.label)
        elif "rewards" in before:
            info["rewards"] = before["rewards"]
        self._over(ok, info)

    def _start_another(self, outcome: Any) -> None:
        """The compiler asked nothing."""
        silent = self.silent = self.silent + 1
        self.give_up()
        if silent > SILENT or self.chosen:
            raise InvalidError(
                f"compilations in a row that asked nothing: {silent}; "
                f"the last: {outcome.kind}: try {outcome.command}\n{outcome.stderr}"
            )
        self._start()

    # ---- Requests that C does not take by itself ----

    def has(self, channel: int) -> bool | None:
        """Is the channel's runner still there? None: the channel is not the row's any more."""
        return dict(self.rows.core.channels(self.row)).get(channel)

    def lose(self, channel: int) -> None:
        """A runner has gone. A worker's compilation goes on without it."""
        if self.workers is not None:
            self.rows.core.unassign(channel)
            self.channels.let_go(channel)
        elif self.now.reports == ADVICE_ALONE:  # as a compilation ends that asks for advice
            self._over(True, {})
        else:
            self._over(False, {"error": LEFT})

    def look(self, key: int) -> bool:
        """Takes a request into this row. False: it is from the middle of another episode."""
        request = self.channels.read(key)
        if request is None:
            return True
        begins = self.now.state == BEGINS
        try:
            info = self._payload(request)
        except RunnerGoneError as error:  # shows when it is looked for
            request.fail(error)
            return True
        verdict = self.rows.core.take(self.row, key)
        if verdict == WRONG:
            mismatch = self._mismatch(request)
            request.fail(mismatch)
            if not begins:
                self._over(False, {"error": str(mismatch)})
            return True
        if verdict == ENDED:
            request.reply(0)
        detach(request)
        if verdict in (TAKEN, ENDED):
            if begins:
                self.channels.give(key, self)
            self._store_info(info, verdict == ENDED)
        elif verdict == ANOTHER:
            self._over(False, {"error": NEXT})
            self.channels.hold(key)
        return bool(verdict != FOREIGN)

    def _payload(self, request: Request) -> dict[str, Any]:
        """Copies of what C does not copy. The first request also determines the arrays."""
        rows = self.rows
        names = [name for name in request if name not in REPORT and name not in rows.features]
        values = {name: request[name] for name in names}
        tensors = {n: values.pop(n) for n in names if isinstance(values[n], np.ndarray)}
        parts = [name for name in tensors if name.startswith("reward.")]
        rewards = {name[7:]: float(np.sum(tensors.pop(name))) for name in parts}
        if tensors and not rows.features and "step" not in request:
            rows.features = {
                name: np.zeros((rows.n, *each.shape), each.dtype) for name, each in tensors.items()
            }
            rows.core.shape(rows.features)
        for name, value in values.items():
            if isinstance(value, Ragged):
                values[name] = Ragged(value.values.copy(), value.offsets)
        if rewards:
            values["rewards"] = rewards
        return values

    def _store_info(self, info: dict[str, Any], ended: bool) -> None:
        """Keeps the info of a request. Rewards of agents add up, as those of the row do."""
        rows, row = self.rows, self.row
        if self.workers is not None:
            agent, before = rows.agents.item(row), self.before.get("rewards", {})
            reward = rows.rewards.item(row) - sum(before.values())
            alone = {rows.name_of(agent): reward} if agent >= 0 and ended else {}
            own = info.get("rewards", alone)
            rewards = {who: before.get(who, 0.0) + own.get(who, 0.0) for who in before | own}
            info |= {"rewards": rewards} if rewards else {}
            self.before = info if ended else {}
        rows.infos[row] = info

    def _mismatch(self, request: Request) -> MismatchError:
        features = {name: each[0] for name, each in self.rows.features.items()}
        return MismatchError(
            f"expected observations of {tensor.describe(features)}, numbers as "
            '"reward", "done", "truncated" and "step", and a text as "agent"; '
            f"found {request.signature}"
        )


OUTCOME = ("module", "kind", "exit", "stderr", "command", "scores")  # of a compilation

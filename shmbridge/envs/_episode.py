"""One row's episode. No other module of Python's changes it, or what C's arrays have of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from shmbridge._fastpath import ADVICE_ALONE, BEGINS, OPEN, REPORTS_REWARDS, SENT, UNKNOWN
from shmbridge._host.request import Request, channel_of, lay_down
from shmbridge._values import tensor
from shmbridge._values.tensor import Ragged
from shmbridge.envs._pool import Channels, CompilerSource
from shmbridge.envs._rows import Rows
from shmbridge.errors import InvalidError, MismatchError, RunnerGoneError

# What a request has besides the observation; and "reward.NAME", where several agents ask through
# one runner.
OWN = ("agent", "reward", "done", "truncated", "step")
MUTE = 10  # compilers in a row that asked nothing

LEFT = "the compiler died or disconnected during the episode"
ANOTHER = "the compiler began another episode during this one"


class State(NamedTuple):
    """What C has of a row."""

    state: int
    key: int  # of the request that waits for an action; -1: there is none
    announced: bool  # the compiler knows that there is a learner
    reports: int  # rewards?


class Episode:
    """A row's episodes, one after another.

    Args:
        rows: The arrays.
        row: Which of their rows.
        channels: Whose requests are whose.
        number: The environment's, for the workers.
    """

    def __init__(self, rows: Rows, row: int, channels: Channels, number: int) -> None:
        self.rows, self.row, self.channels, self.number = rows, row, channels, number
        self.workers = channels.workers
        self.label = ""  # its worker's
        self.chosen = False  # the caller chose the program by its name
        self.carried = 0.0  # reward of a drive that is done, in a compilation that goes on
        self.parts: dict[str, float] = {}  # the agents' own parts of it
        self.mute = 0  # compilers in a row that asked nothing

    @property
    def now(self) -> State:
        """What C has of it."""
        return State(*self.rows.core.row(self.row))

    # ---- Begin and end ----

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """One is to begin, at the next wait. One under way is given up."""
        self.give_up()
        self.mute = 0
        self._start(seed, options)

    def _start(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Has the workers start a compiler. A seed is for this episode and those after it."""
        if self.workers is not None:
            self.chosen = bool(options)
            self.label = self.workers.begin(self.number, seed=seed, options=options)
            self.channels.expect(self.label, self)
        self.rows.core.move(self.row, BEGINS)

    def give_up(self) -> None:
        """Ends it, which its compiler gets as an error. Before its first action it is as good as a
        new one, and waits to begin again."""
        now = self.now
        if now.state == OPEN and now.reports == UNKNOWN and self.workers is None:
            self.channels.hold(now.key)
        elif now.state == OPEN:
            self.channels.refuse(now.key)
        self._free(False)

    def _free(self, over: bool) -> None:
        owned = self.rows.core.channels(self.row)
        self.rows.core.end(self.row, over)
        for channel, _ in owned:
            self.channels.let_go(channel)
        if self.label and self.workers is not None:
            self.channels.forget(self.label)
            self.workers.end(self.label)
        self.label, self.carried, self.parts = "", 0.0, {}
        self.rows.rewarded[self.row] = False
        self.rows.later = [each for each in self.rows.later if each[0] is not self]

    def _over(self, terminated: bool, info: dict[str, Any]) -> None:
        """It ended without its compiler's word."""
        rows, row = self.rows, self.row
        rows.rewards[row] = self.carried
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
            if not lay_down(request):
                self.rows.core.move(self.row, SENT)

    def time_out(self, seconds: float | None) -> None:
        """Nothing came for so long."""
        if self.now.state == SENT:
            self._over(False, {"error": f"the compiler asked nothing for {seconds} s"})

    def look_for_the_dead(self, nobody: bool) -> None:
        """Has its compiler died? nobody: none is connected."""
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
            self._start_another(outcome, self.workers)
            return
        ok = outcome.kind == "ok"
        error = {} if ok else {"error": f"the compiler failed: {outcome.kind}"}
        parts = {"rewards": self.parts} if self.parts else {}
        if ok and not (self.rows.rewarded[self.row] or self.carried):
            self.carried, parts = self.workers.reward(self.label), {}
        self._over(ok, {**_described(outcome), **error, **parts})

    def _start_another(self, outcome: Any, workers: CompilerSource) -> None:
        """The compiler asked nothing."""
        mute = self.mute = self.mute + 1
        self.give_up()
        if mute > MUTE or self.chosen:
            raise InvalidError(
                f"compilations in a row that asked nothing: {mute}; "
                f"the last: {outcome.kind}: try {outcome.command}\n{outcome.stderr}"
            )
        self._start()
        self.channels.come_early(workers)

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

    def begin_with(self, key: int) -> bool:
        """The first request of any compiler. False: it begins no episode."""
        if not self.rows.core.begin(self.row, key):
            request = self.channels.read(key)
            if request is None or "step" in request:
                self.rows.core.unassign(channel_of(key))
                if request is not None:
                    lay_down(request)
                return False
            if not self._read(key, request):
                return True
        self.channels.give(key, self)
        return True

    def join(self, key: int) -> None:
        """A runner of its own compiler asks for the first time."""
        if self.now.state != BEGINS:
            self.rows.core.assign(self.row, key)
            self.look(key)
        elif not self.rows.core.begin(self.row, key):
            request = self.channels.read(key)
            if request is not None:
                self._read(key, request)

    def look(self, key: int) -> None:
        """The next request, or one that came too early."""
        if self.rows.core.take(self.row, key):
            return
        now, request = self.now, self.channels.read(key)
        if request is None:
            return
        if now.state != SENT:  # a second runner of a compilation, or one that does not wait
            lay_down(request)
            self.rows.later.append((self, key))
        elif "step" not in request and now.reports == REPORTS_REWARDS and self.workers is None:
            lay_down(request)
            self._over(False, {"error": ANOTHER})
            self.channels.hold(key)
        else:
            self._read(key, request)

    def _read(self, key: int, request: Request) -> bool:
        """What a request says, into the row. False: it is none of the row's, and is refused."""
        rows, row = self.rows, self.row
        begun = self.now.state == SENT
        try:
            self._fill(request)
        except (MismatchError, RunnerGoneError, TypeError, ValueError) as error:
            request.fail(error)
            if begun:
                self._over(False, {"error": str(error)})
            else:
                rows.core.unassign(channel_of(key))
            return False
        rows.rewards[row] += self.carried
        if self.parts:
            own = rows.infos[row].get("rewards", {})
            rows.infos[row]["rewards"] = {
                who: self.parts.get(who, 0.0) + own.get(who, 0.0) for who in {**self.parts, **own}
            }
        self.carried, self.parts = 0.0, {}
        if not (rows.terminated[row] or rows.truncated[row]):
            announced = "step" in request
            lay_down(request)
            reports = REPORTS_REWARDS if announced else ADVICE_ALONE if begun else UNKNOWN
            rows.core.set_open(row, key, announced, reports)
            return True
        request.reply(0)
        if self.workers is None:
            self._free(True)
        else:  # the compilation goes on, and may drive again
            rows.core.move(row, SENT)
            self.carried = rows.rewards.item(row)
            agent = rows.agents.item(row)
            alone = {rows.name_of(agent): self.carried} if agent >= 0 else {}
            self.parts = rows.infos[row].get("rewards", alone)
        return True

    def _fill(self, request: Request) -> None:
        """What a request says, but for what C knows of it.

        Raises:
            MismatchError, TypeError, ValueError: It cannot be the row's.
        """
        rows, row = self.rows, self.row
        values = {name: _copied(request[name]) for name in request}
        own = {name: values.pop(name, None) for name in OWN}
        rewards = {name[7:]: values.pop(name) for name in request if name.startswith("reward.")}
        tensors = {name: each for name, each in values.items() if isinstance(each, np.ndarray)}
        agent = own["agent"]
        if not isinstance(agent, str | None):
            raise MismatchError(
                f'expected "agent" to be a text, the name of an agent; found {agent!r:.100}'
            )
        self._observe(tensors)
        rows.infos[row] = {name: each for name, each in values.items() if name not in tensors}
        if rewards:
            rows.infos[row]["rewards"] = {who: float(each) for who, each in rewards.items()}
        rows.agents[row] = -1 if agent is None else self._number(agent)
        rows.rewards[row], rows.steps[row] = own["reward"] or 0.0, own["step"] or 0
        rows.terminated[row], rows.truncated[row] = bool(own["done"]), bool(own["truncated"])

    def _observe(self, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        rows, row = self.rows, self.row
        if tensors and not rows.features:
            rows.features = {
                name: np.zeros((rows.n, *each.shape), each.dtype) for name, each in tensors.items()
            }
            rows.core.shape(rows.features)
        like = tensors.keys() == rows.features.keys() and all(
            (each.shape, each.dtype) == (rows.features[name].shape[1:], rows.features[name].dtype)
            for name, each in tensors.items()
        )
        if not like and tensors:  # a report may have none
            if rows.strict:
                one = {name: each[0] for name, each in rows.features.items()}
                expected, found = tensor.describe(one), tensor.describe(tensors)
                raise MismatchError(f"expected observations of {expected}; found {found}")
            rows.odd[row] = tensors
        for name, each in tensors.items() if like else ():
            rows.features[name][row] = each

    def _number(self, agent: str) -> int:
        names, name = self.rows.names, agent.encode(errors="surrogateescape")
        if name not in names:
            names.append(name)
        return names.index(name)


def _copied(value: Any) -> Any:
    """A value of a request that is kept beyond it."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return Ragged(value.values.copy(), value.offsets) if isinstance(value, Ragged) else value


def _described(outcome: Any) -> dict[str, Any]:
    names = ("module", "kind", "exit", "stderr", "command", "scores")
    return {name: getattr(outcome, name) for name in names}

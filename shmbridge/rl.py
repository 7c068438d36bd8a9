"""Reinforcement learning with the environment inside the compiler: what a pass is, and who acts in it, over any runner. The same
as in C (shmbridge.h, "Environments") and C++ (shmbridge_rl.hpp). The other side is shmbridge.trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shmbridge import tensor
from shmbridge._native import ffi, lib
from shmbridge.errors import (
    InterruptedCallError,
    InvalidError,
    MismatchError,
    ShmbridgeError,
    TooLargeError,
    raise_status,
)
from shmbridge.runner import Runner

CHOICES = {
    "argmax": lib.SHMB_ARGMAX,
    "logits": lib.SHMB_SAMPLE_LOGITS,
    "probabilities": lib.SHMB_SAMPLE_PROBABILITIES,
    "raw": lib.SHMB_RAW,
}


class Random:
    """SplitMix64, the generator of C and C++: the same numbers for the same seed, on every machine. seed: any integer."""

    def __init__(self, seed: int = 0) -> None:
        self._state = ffi.new("uint64_t *", seed % (1 << 64))

    def __call__(self) -> float:
        """The next number of [0, 1), a multiple of 2**-53."""
        return float(lib.shmb_random(self._state))


def choose(advice: Any, how: str = "argmax", random: Random | None = None) -> int:
    """An action out of numbers (what `Runner.evaluate` takes as a tensor), by C's shmb_choose. how: "argmax" (of equal ones the first),
    or an index at random by "logits" or by "probabilities", which takes a number of `random` each. A single integer is an action
    already. Errors: MismatchError (nothing to choose from), ModelError (NaN, no distribution), InvalidError."""
    field = tensor.as_field("advice", advice)
    t, why, action = ffi.new("shmb_tensor *"), ffi.new("const char **"), ffi.new("int64_t *")
    data = ffi.from_buffer(field.values.reshape(-1).view(np.uint8))
    t.dtype, t.kind, t.rank, t.size, t.data = (
        field.code,
        field.kind,
        field.values.ndim,
        field.values.size,
        data,
    )
    state = random._state if random is not None else Random()._state
    status = lib.shmb_choose(t, _code(how), state, action, why)
    if status:
        raise_status(status, why[0])
    return int(action[0])


def _code(how: str) -> int:
    try:
        return int(CHOICES[how])
    except KeyError:
        raise InvalidError(f"choice {how!r}: expected one of {', '.join(CHOICES)}") from None


# ---- In the compiler ----


@dataclass
class Action:
    """What an agent does. agent: its name; index: the choice, 0 with "raw"; advice: what it was made from, a
    dict where that are several fields, None where there is none."""

    agent: str
    index: int
    advice: Any
    runner: Runner


class Agent:
    """Who acts: asks its runner, which several may share, and chooses.

    choice: "argmax", "raw", or at random by "logits" or "probabilities", from this seed; advice: the field to choose from, where
    there are several. steps, reward: of the last episode, its actions and the sum of its rewards."""

    def __init__(
        self,
        runner: Runner,
        name: str = "",
        choice: str = "argmax",
        seed: int = 0,
        advice: str | None = None,
    ) -> None:
        _code(choice)
        self.runner, self.name, self.choice, self.advice = runner, name, choice, advice
        self.random = Random(seed)
        self.steps, self.reward = 0, 0.0

    def act(self, action: Action) -> int | None:
        """Asked before the choice, with the advice in `action`: the action's index, or None to leave it to the choice."""

    def _decide(self, fields: Mapping[str, Any]) -> Action:
        advice: Any = dict(fields)
        if len(fields) == 1:
            (advice,) = fields.values()
        elif self.advice is not None and self.advice in fields:
            advice = fields[self.advice]
        elif self.advice is not None or self.choice != "raw":
            raise MismatchError(
                f"agent {self.name!r}: expected advice {self.advice or 'of one field'}, found {', '.join(fields)}"
            )
        action = Action(self.name, 0, advice, self.runner)
        index = self.act(action)
        if index is None and self.choice != "raw":
            index = choose(advice, self.choice, self.random)
        action.index = index or 0
        return action


class Environment:
    """A pass. Observations are features by name, as `Runner.evaluate` takes them; the names "agent", "reward", "done", "truncated" and
    "step" are taken."""

    _done = False
    _drive: _Episode | None = None

    def reset(self) -> Mapping[str, Any] | None:
        """Begins: the first observation, or None and `set_done`."""
        raise NotImplementedError

    def step(self, action: Action) -> Mapping[str, Any] | None:
        """Does what the action says: the next observation, or None."""
        raise NotImplementedError

    def on_error(self, error: ShmbridgeError) -> int | None:
        """There is no action: the index of the compiler's own heuristic to go on with, or None to end the episode with this error."""

    def set_done(self) -> None:
        """The episode is over."""
        self._done = True

    def next_agent(self, name: str) -> None:
        """Says whose turn is next; else it is who acted. Errors: InvalidError."""
        episode = self._running()
        episode.next = episode.find(name)

    def add_reward(self, reward: float, agent: str | None = None) -> None:
        """Rewards an agent, None: who acted; several rewards add up. Errors: InvalidError."""
        episode = self._running()
        rewarded = episode.actor if agent is None else episode.find(agent)
        rewarded.reward += reward
        episode.unsaid[rewarded.runner] = episode.unsaid.get(rewarded.runner, 0.0) + reward

    def _running(self) -> _Episode:
        if self._drive is None:
            raise InvalidError(
                "no episode is under way: expected a call from reset, step or on_error"
            )
        return self._drive


class _Episode:
    """What one drive knows: whose turn it is, which runners have a learner behind them, and what reward they have not heard of."""

    def __init__(self, environment: Environment, agents: Sequence[Agent]) -> None:
        self.environment = environment
        self.agents = {agent.name: agent for agent in agents}
        if not agents or len(self.agents) < len(agents):
            raise InvalidError(
                f"expected agents of different names, found {[agent.name for agent in agents]}"
            )
        self.actor = self.next = agents[0]
        self.learners: set[Runner] = set()
        self.unsaid: dict[Runner, float] = {}
        self.steps = 0

    def find(self, name: str) -> Agent:
        try:
            return self.agents[name]
        except KeyError:
            raise InvalidError(
                f"the environment names an agent {name!r}: expected one of {', '.join(self.agents)}"
            ) from None

    def request(
        self, observation: Mapping[str, Any] | None, agent: Agent, done: bool, truncated: bool
    ) -> dict[str, Any]:
        features = dict(observation or {})
        own: dict[str, Any] = {"agent": agent.name} if agent.name else {}
        if agent.runner in self.learners:
            reward = float(self.unsaid.get(agent.runner, 0.0))
            own.update(reward=reward, done=done, truncated=truncated, step=self.steps)
        taken = features.keys() & own.keys()
        if taken:
            raise InvalidError(
                f"an observation's features may not be called {', '.join(sorted(taken))}"
            )
        return features | own

    def ask(self, observation: Mapping[str, Any] | None) -> Action:
        self.actor = agent = self.next
        agent.runner.evaluate(self.request(observation, agent, False, False))
        self.unsaid.pop(agent.runner, None)
        if "learner" in agent.runner.advice:
            self.learners.add(agent.runner)
        return agent._decide(agent.runner.advice)

    def run(self, max_steps: int | None) -> Mapping[str, Any] | None:
        environment = self.environment
        observation = environment.reset()
        while not environment._done and (max_steps is None or self.steps < max_steps):
            try:
                action = self.ask(observation)
            except ShmbridgeError as error:
                index = environment.on_error(error)
                if environment._done:
                    return None
                if index is None:
                    raise
                action = Action(self.actor.name, index, None, self.actor.runner)
            self.steps += 1
            self.actor.steps += 1
            observation = environment.step(action)
        return observation

    def report(self, observation: Mapping[str, Any] | None, done: bool) -> None:
        """The last word to the trainers, without the observation where that cannot be sent. Their errors are nobody's."""
        for runner in self.learners:
            agent = (
                self.actor
                if self.actor.runner is runner
                else next(a for a in self.agents.values() if a.runner is runner)
            )
            for seen in (observation if self.next.runner is runner else None, None):
                try:
                    runner.evaluate(self.request(seen, agent, done, not done))
                    break
                except (InvalidError, MismatchError, TooLargeError):
                    continue
                except ShmbridgeError:
                    break


def drive(
    environment: Environment, agents: Agent | Sequence[Agent], max_steps: int | None = None
) -> None:
    """Runs an episode until it is done, or max_steps actions (None: any number) are over. agents[0] begins.

    Errors: what reset, step, act and on_error raise, and what evaluate and choose do unless on_error has an action. A trainer is told of
    the end all the same."""
    episode = _Episode(environment, [agents] if isinstance(agents, Agent) else agents)
    for agent in episode.agents.values():
        agent.steps, agent.reward = 0, 0.0
    environment._done, environment._drive = False, episode
    try:
        observation = episode.run(max_steps)
        episode.report(observation, environment._done)
    except InterruptedCallError:
        raise
    except Exception:
        episode.report(None, False)
        raise
    finally:
        environment._drive = None

"""Reinforcement learning with the environment inside the compiler: a pass and its agents, over any
runner. The same as in C (shmbridge/environment.h) and C++ (shmbridge_rl.hpp). The trainer's side is
shmbridge.envs.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._runner.runner import Runner
from shmbridge._values import tensor
from shmbridge.errors import (
    InterruptedCallError,
    InvalidError,
    MismatchError,
    ShmbridgeError,
    TooLargeError,
    raise_status,
)

CHOICES = {
    "argmax": lib.SHMB_ARGMAX,
    "logits": lib.SHMB_SAMPLE_LOGITS,
    "probabilities": lib.SHMB_SAMPLE_PROBABILITIES,
    "raw": lib.SHMB_RAW,
}


class Random:
    """SplitMix64, the generator of C and C++: the same numbers for the same seed, on every machine.

    Args:
        seed: Any integer.
    """

    def __init__(self, seed: int = 0) -> None:
        self._state = ffi.new("uint64_t *", seed % (1 << 64))

    def __call__(self) -> float:
        """The next number of [0, 1), a multiple of 2**-53."""
        return float(lib.shmb_random(self._state))


def choose(advice: Any, how: str = "argmax", random: Random | None = None) -> int:
    """Chooses an action from numbers, with the same result in C, C++ and Python on every machine.

    Args:
        advice: Any tensor that `Runner.evaluate` accepts. A single integer is taken as the action.
        how: "argmax" (the first of equal ones), or a random index by "logits" or "probabilities".
        random: The generator; a sample uses one number.

    Raises:
        MismatchError: The advice is not a tensor of numbers, or is empty.
        ModelError: A number is NaN, or the numbers are no distribution.
        InvalidError: There is no such choice.
    """
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
    """An agent's action.

    Attributes:
        agent: The agent's name.
        index: The choice; 0 with "raw".
        advice: The advice that it was chosen from: a dict of several fields, None if there is none.
        runner: The runner that the agent asked.
    """

    agent: str
    index: int
    advice: Any
    runner: Runner


class Agent:
    """Asks its runner and chooses an action. Agents may share a runner.

    Args:
        runner: The runner that it asks.
        name: The agent's name, if there are several.
        choice: "argmax", "raw" (the environment reads the advice itself), or at random by "logits"
            or "probabilities".
        seed: The seed of the random numbers.
        advice: The field to choose from, if the advice has several.

    Attributes:
        steps: The number of actions in the last episode.
        reward: The sum of rewards in the last episode.
    """

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
        """Called before the choice. Override it to choose yourself.

        Args:
            action: The action so far, with the advice.

        Returns:
            The action's index, or None to use the choice.
        """

    def _decide(self, fields: Mapping[str, Any]) -> Action:
        advice: Any = dict(fields)
        if len(fields) == 1:
            (advice,) = fields.values()
        elif self.advice is not None and self.advice in fields:
            advice = fields[self.advice]
        elif self.advice is not None or self.choice != "raw":
            raise MismatchError(
                f"agent {self.name!r}: expected advice {self.advice or 'of one field'}, found "
                f"{', '.join(fields)}"
            )
        action = Action(self.name, 0, advice, self.runner)
        index = self.act(action)
        if index is None and self.choice != "raw":
            index = choose(advice, self.choice, self.random)
        action.index = index or 0
        return action


class Environment:
    """A pass. Observations are features by name, as `Runner.evaluate` accepts them. The names
    "agent", "reward", "reward.NAME", "done", "truncated" and "step" are reserved."""

    _done = False
    _drive: _Episode | None = None

    def reset(self) -> Mapping[str, Any] | None:
        """Begins an episode.

        Returns:
            The first observation. None after `set_done`.
        """
        raise NotImplementedError

    def step(self, action: Action) -> Mapping[str, Any] | None:
        """Performs an action.

        Args:
            action: The agent's action.

        Returns:
            The next observation. None after `set_done`.
        """
        raise NotImplementedError

    def on_error(self, error: ShmbridgeError) -> int | None:
        """Called if there is no action. Override it to continue with the compiler's own heuristic.

        Args:
            error: The reason.

        Returns:
            The heuristic's index, or None to end the episode with this error.
        """

    def set_done(self) -> None:
        """Marks the episode as done."""
        self._done = True

    def next_agent(self, name: str) -> None:
        """Selects the agent that acts next. Without it the same agent continues.

        Args:
            name: The agent's name.

        Raises:
            InvalidError: There is no such agent, or no episode is running.
        """
        episode = self._running()
        episode.next = episode.find(name)

    def add_reward(self, reward: float, agent: str | None = None) -> None:
        """Rewards an agent. Several rewards add up.

        Args:
            reward: The reward.
            agent: The agent's name. None: the agent that acted.

        Raises:
            InvalidError: There is no such agent, or no episode is running.
        """
        episode = self._running()
        rewarded = episode.actor if agent is None else episode.find(agent)
        rewarded.reward += reward
        episode.unsaid[rewarded.name] = episode.unsaid.get(rewarded.name, 0.0) + reward

    def _running(self) -> _Episode:
        if self._drive is None:
            raise InvalidError(
                "no episode is running: expected a call from reset, step or on_error"
            )
        return self._drive


class _Episode:
    """The state of one drive: the next agent, runners with a learner, and unreported rewards."""

    def __init__(self, environment: Environment, agents: Sequence[Agent]) -> None:
        self.environment = environment
        self.agents = {agent.name: agent for agent in agents}
        if not agents or len(self.agents) < len(agents):
            raise InvalidError(
                f"expected agents of different names, found {[agent.name for agent in agents]}"
            )
        self.actor = self.next = agents[0]
        self.learners: set[Runner] = set()
        self.unsaid: dict[str, float] = {}  # by agent
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
            sharing = [each for each in self.agents.values() if each.runner is agent.runner]
            rewards = {each.name: float(self.unsaid.get(each.name, 0.0)) for each in sharing}
            # As in C; Python's sum rounds otherwise.
            own["reward"] = reduce(operator.add, rewards.values())
            if len(sharing) > 1:
                own |= {f"reward.{name}": reward for name, reward in rewards.items()}
            own.update(done=done, truncated=truncated, step=self.steps)
        taken = features.keys() & own.keys()
        if taken:
            raise InvalidError(
                f"reserved names of an observation's features: {', '.join(sorted(taken))}"
            )
        return features | own

    def ask(self, observation: Mapping[str, Any] | None) -> Action:
        self.actor = agent = self.next
        agent.runner.evaluate(self.request(observation, agent, False, False))
        for each in self.agents.values():
            if each.runner is agent.runner:
                self.unsaid.pop(each.name, None)
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
        """Reports the end to the trainers, without the observation if that cannot be sent. Errors
        are ignored."""
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
    """Runs an episode until it is done.

    The end is always reported to a trainer.

    Args:
        environment: The pass.
        agents: The agents; the first one begins.
        max_steps: The episode ends after this number of actions. None: no limit.

    Raises:
        InvalidError: `max_steps` is below 1.
        Exception: The exceptions of reset, step, act and on_error. Those of evaluate and `choose`,
            unless on_error returns an action.
    """
    if max_steps is not None and max_steps < 1:
        raise InvalidError(f"max_steps={max_steps}: expected 1 or more, or None for any number")
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

"""Reinforcement learning with the environment inside the compiler: a pass and its agents, over any
runner. The same as in C (shmbridge/environment.h) and C++ (shmbridge_rl.hpp). The trainer's side is
shmbridge.envs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge._runner.runner import Runner, handle_of, in_use
from shmbridge._urls import plugins
from shmbridge._values import tensor
from shmbridge.errors import InvalidError, ShmbridgeError, error_of, error_text, raise_status

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
        # C's driver chooses with the generator of an agent.
        self._agent = ffi.new("shmb_agent *", {"random": seed % (1 << 64)})
        self._state = ffi.addressof(self._agent, "random")

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
    t.rank, t.size = field.values.ndim, field.values.size
    t.dtype, t.kind, t.data = field.code, field.kind, data
    random = random or Random()  # whose memory C writes to
    status = lib.shmb_choose(t, _code(how), random._state, action, why)
    if status:
        raise_status(status, why[0])
    return int(action[0])


def _code(how: str) -> int:
    if how not in CHOICES:
        raise InvalidError(f"choice {how!r}: expected one of {', '.join(CHOICES)}")
    return int(CHOICES[how])


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

    @property
    def steps(self) -> int:
        return int(self.random._agent.steps)

    @property
    def reward(self) -> float:
        return float(self.random._agent.reward)

    def _begin(self) -> Any:
        self._texts = plugins.c_text(self.name), plugins.c_text(self.advice or "")
        c = self.random._agent
        c.name, c.advice = self._texts[0], self._texts[1] if self.advice else ffi.NULL
        c.size, c.runner, c.choice = ffi.sizeof(c[0]), handle_of(self.runner), _code(self.choice)
        return c


class Environment:
    """A pass. Observations are features by name, as `Runner.evaluate` accepts them. The names
    "agent", "reward", "reward.NAME", "done", "truncated", "step" and "error" are reserved."""

    _episode: _Episode | None = None

    def reset(self) -> Mapping[str, Any] | None:
        """Begins an episode. Returns the first observation; None after `set_done`."""
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
        lib.shmb_set_done(self._running().c)

    def next_agent(self, name: str) -> None:
        """Selects the agent that acts next. Without it the same agent continues. An unknown name
        ends the episode with InvalidError.

        Args:
            name: The agent's name.

        Raises:
            InvalidError: No episode is running.
        """
        lib.shmb_next_agent(self._running().c, plugins.c_text(name))

    def add_reward(self, reward: float, agent: str | None = None) -> None:
        """Rewards an agent. Several rewards add up. An unknown name or a NaN ends the episode with
        InvalidError.

        Args:
            reward: The reward.
            agent: The agent's name. None: the agent that acted.

        Raises:
            InvalidError: No episode is running.
        """
        rewarded = ffi.NULL if agent is None else plugins.c_text(agent)
        lib.shmb_add_reward(self._running().c, rewarded, reward)

    def _running(self) -> _Episode:
        if self._episode is None:
            raise InvalidError(
                "no episode is running: expected a call from reset, step or on_error"
            )
        return self._episode


class _Episode:
    """What shmb_drive calls back. The exception that ends it waits here until C has returned."""

    def __init__(self, environment: Environment, agents: Sequence[Agent]) -> None:
        self.environment = environment
        self.runners = {handle_of(agent.runner): agent.runner for agent in agents}
        self.c: Any = ffi.NULL
        self.error: BaseException | None = None
        self.missing: ShmbridgeError | None = None  # why there is no advice

    def run(self, agents: Sequence[Agent], max_steps: int) -> None:
        context, why = ffi.new_handle(self), ffi.new("const char **")
        callbacks = lib.shmb_python_reset, lib.shmb_python_step, lib.shmb_python_on_error
        c = ffi.new("shmb_environment *", (ffi.sizeof("shmb_environment"), context, *callbacks))
        with ExitStack() as stack:
            for runner in self.runners.values():
                stack.enter_context(in_use(runner))
            handles = [agent._begin() for agent in agents]
            ask = lib.shmb_python_ask
            status = lib.shmb_drive_by(c, handles, len(handles), max_steps, ask, why)
            if status and self.error is None:
                raise_status(status, why[0])
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = self.missing = None  # their frames would keep this episode

    def fill(self, observation: Mapping[str, Any] | None) -> int:
        """Gives the observation to the next agent."""
        runner = self.runners[lib.shmb_next_agent(self.c, ffi.NULL)]
        runner._fill_all(dict(observation or {}))
        return int(lib.SHMB_OK)

    def action(self, c: Any) -> Action:
        """The Python form of an action."""
        runner = self.runners[c.runner]
        advice: Any = None if self.missing else runner.advice
        if c.advice.name:
            advice = runner.advice[ffi.string(c.advice.name).decode()]
        return Action(ffi.string(c.agent).decode(), c.index, advice, runner)


def _reset(context: Any, c: Any) -> int:
    episode: _Episode = ffi.from_handle(context)
    episode.c = c
    return episode.fill(episode.environment.reset())


def _ask(context: Any, r: Any) -> int:
    episode: _Episode = ffi.from_handle(context)
    episode.missing = None
    try:
        if isinstance(episode.error, Exception | None):
            episode.runners[r]._ask()
            return int(lib.SHMB_OK)
    except ShmbridgeError as error:
        episode.missing = error
        return error.status
    lib.shmb_discard(r)  # after Ctrl-C nobody hears of the end
    return int(lib.SHMB_INTERRUPTED)


def _step(context: Any, _c: Any, action: Any) -> int:
    episode: _Episode = ffi.from_handle(context)
    return episode.fill(episode.environment.step(episode.action(action)))


def _on_error(context: Any, _c: Any, status: int, why: Any, action: Any) -> int:
    episode: _Episode = ffi.from_handle(context)
    if episode.error is not None:
        return status
    episode.missing = episode.missing or error_of(status, why)
    index = episode.environment.on_error(episode.missing)
    if index is None:
        episode.error = episode.missing
        return status
    action.index = index
    return int(lib.SHMB_OK)


def _keep(_kind: Any, error: BaseException, trace: Any) -> int:
    """One of these raised, or Ctrl-C came meanwhile."""
    episode: _Episode = ffi.from_handle(trace.tb_frame.f_locals["context"])
    if episode.error is None or not isinstance(error, Exception):
        episode.error = error
        lib.shmb_set_error(episode.c, error_text(error).encode(errors="replace"))
    return int(lib.SHMB_MODEL if isinstance(error, Exception) else lib.SHMB_INTERRUPTED)


for _callback in (_reset, _ask, _step, _on_error):
    ffi.def_extern(f"shmb_python{_callback.__name__}", lib.SHMB_INTERRUPTED, _keep)(_callback)


def drive(
    environment: Environment, agents: Agent | Sequence[Agent], max_steps: int | None = None
) -> None:
    """Runs an episode until it is done.

    The end is reported to a trainer with the text of an exception, except after Ctrl-C. Until then
    the agents' runners ask nothing else.

    Args:
        environment: The pass.
        agents: The agents; the first one begins.
        max_steps: The episode ends after this number of actions. None: no limit.

    Raises:
        InvalidError: `max_steps` is below 1, two agents have one name, or a runner is in use.
        Exception: The exceptions of reset, step and on_error. Those of evaluate and `choose`,
            unless on_error returns an action.
    """
    if max_steps is not None and max_steps < 1:
        raise InvalidError(f"max_steps={max_steps}: expected 1 or more, or None for any number")
    agents = [agents] if isinstance(agents, Agent) else agents
    environment._episode = episode = _Episode(environment, agents)
    try:
        episode.run(agents, max_steps or 0)
    finally:
        environment._episode = None

"""A compiler whose agents take turns, as an environment of PettingZoo: pip install
'shmbridge[pettingzoo]'.

env = CompilerAECEnv("shm://layout", agents=["inline", "unroll"], actions=2)
env.reset()
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    env.step(None if terminated or truncated else policy(agent, observation))
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge._episodes.pool import CompilerPool
from shmbridge.envs import CompilerEnv, _spaces
from shmbridge.errors import InvalidError

try:
    from pettingzoo import AECEnv
except ImportError as error:
    raise ImportError(
        "environments of several agents need PettingZoo: pip install 'shmbridge[pettingzoo]'"
    ) from error


class CompilerAECEnv(AECEnv):  # type: ignore[misc] # Any, for mypy
    """One compiler at a time as an `AECEnv` of PettingZoo. Its agents act in the order of
    `next_agent`.

    Episodes are as in `CompilerEnv`. An agent observes the features of its last question, and zeros
    before that. If the compiler's agents share a runner, each agent gets its part of the reward.
    All of them get the reward of the `Workers`.

    Args:
        compilers: As in `CompilerEnv`.
        agents: The names of all agents.
        actions: The number of actions, or a space; or a dict of these by agent.
        options: As in `CompilerEnv`: timeout, workers, the host's options.
    """

    metadata: dict[str, Any] = {
        "name": "compiler_v0",
        "render_modes": [],
        "is_parallelizable": False,
    }
    render_mode = None

    def __init__(
        self,
        compilers: CompilerPool | Host | str,
        *,
        agents: Sequence[str],
        actions: Any,
        **options: Any,
    ) -> None:
        super().__init__()
        self.possible_agents = list(agents)
        self.agents: list[str] = []
        each = actions if isinstance(actions, Mapping) else dict.fromkeys(agents, actions)
        self.action_spaces = {agent: _spaces.of_actions(each[agent]) for agent in agents}
        self._env = CompilerEnv(compilers, **options)
        self._seen: dict[str, Any] = {}  # by agent

    def observation_space(self, agent: str) -> Any:
        """As `AECEnv.observation_space`. Waits for the first compiler; a DeadlineError after the
        timeout."""
        return self._env.observation_space

    def action_space(self, agent: str) -> Any:
        """As `AECEnv.action_space`."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Waits for a compiler that begins an episode. A running episode is abandoned.

        Args:
            seed: As in `CompilerEnv.reset`.
            options: With workers: {"module": name}. Others are ignored with a warning, since
                PettingZoo's tests pass some.

        Raises:
            InvalidError: No such module, or the compiler asks for an agent that is not in `agents`.
            DeadlineError: No compiler connected within the timeout.
            ClosedError: The host is closed.
        """
        known = {name: each for name, each in (options or {}).items() if name == "module"}
        if unknown := [name for name in options or {} if name not in known]:
            warnings.warn(f"reset(options=...) leaves {', '.join(unknown)} out", stacklevel=2)
        observation, info = self._env.reset(seed=seed, options=known)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._seen = {}
        self._turn(observation, info)

    def step(self, action: Any) -> None:
        """Sends the action of the current agent.

        Args:
            action: Its action; None for an agent whose episode is over.

        Raises:
            InvalidError: The action is not in its space, or the compiler asks for an agent that is
                not in `agents`. The compiler still waits.
            ClosedError: The host is closed.
        """
        actor = self.agent_selection
        if self.terminations[actor] or self.truncations[actor]:
            self._was_dead_step(action)
            return
        space = self.action_spaces[actor]
        if space is not None and not space.contains(action):
            raise InvalidError(f"action {action!r} of {actor}: expected one of {space}")
        observation, reward, terminated, truncated, info = self._env.step(action)
        whose = self.agents if "kind" in info else [actor]  # a compilation's is everybody's
        rewards = info.get("rewards") or dict.fromkeys(whose, reward)
        self._check(info.get("agent", actor), *rewards)
        self._cumulative_rewards[actor] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0) | rewards
        self._accumulate_rewards()
        if terminated or truncated:
            self.terminations = dict.fromkeys(self.agents, terminated)
            self.truncations = dict.fromkeys(self.agents, truncated)
            self.infos = {agent: dict(info) for agent in self.agents}
            self._seen[info.get("agent", actor)] = observation
            self._deads_step_first()
        else:
            self._turn(observation, info)

    def observe(self, agent: str) -> Any:
        """As `AECEnv.observe`: the features of the agent's last question; zeros before that."""
        if agent not in self._seen:
            space = self.observation_space(agent)
            self._seen[agent] = {
                name: np.zeros(each.shape, each.dtype) for name, each in space.items()
            }
        return self._seen[agent]

    def close(self) -> None:
        """Abandons the episode, and closes the host if it belongs to this environment."""
        self._env.close()

    def _turn(self, observation: dict[str, Any], info: dict[str, Any]) -> None:
        agent = info.get("agent", "" if len(self.agents) > 1 else self.agents[0])
        self._check(agent)
        self.agent_selection = agent
        self.infos[agent] = info
        self._seen[agent] = observation

    def _check(self, *agents: str) -> None:
        for agent in set(agents).difference(self.possible_agents):
            raise InvalidError(
                f"the compiler has an agent {agent!r}: expected one of "
                f"{', '.join(self.possible_agents)}"
            )

"""One compiler at a time as a gymnasium.Env."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge._episodes.pool import CompilerPool
from shmbridge.envs._vector_env import CompilerVectorEnv
from shmbridge.errors import InvalidError
from shmbridge.training import Workers

import gymnasium  # isort: skip # behind these, which say what to install

Turn = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


class CompilerEnv(gymnasium.Env):  # type: ignore[misc] # Any, for mypy
    """One compiler at a time as a `gymnasium.Env`: a `CompilerVectorEnv` of one.

    An episode is a `drive` of the compiler, in C, C++ or Python. For a compiler that only asks for
    advice, such as an unmodified clang, an episode lasts from its first question until it
    disconnects, without rewards. With workers an episode is one compilation in both cases. If the
    compiler reports no reward other than 0, the reward of the `Workers` is given at the last step.

    Observations contain the tensors by name, as copies. `info` contains texts, lists, and

    - "step", the number of actions so far, and "agent", the agent to act, if agents have names;
    - "rewards", each agent's part of the reward, if agents share a runner;
    - "action_mask", the feature of that name;
    - "error", if an episode was truncated because the compiler's environment failed, or the
      compiler died, disconnected, or was silent. The next reset takes the next compiler;
    - with workers, at the end, "module", "kind", "exit", "stderr", "command" and "scores", as in
      the compilation's `Outcome`.

    Args:
        compilers: A `CompilerPool` that several environments share, or a separate host or URL,
            which close() closes.
        actions: The number of actions, or a space. None: any advice, without an action space.
        timeout: Seconds to wait for a request. None: as long as the compiler lives.
        workers: As in `CompilerPool`, if `compilers` is not one.
        options: The host's options, if a URL is given.

    Raises:
        InvalidError: The host has too few channels for the compilers of all its environments.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        compilers: CompilerPool | Host | str,
        *,
        actions: Any = None,
        timeout: float | None = None,
        workers: Workers | None = None,
        **options: Any,
    ) -> None:
        self._vector = CompilerVectorEnv(
            compilers,
            1,
            actions=actions,
            timeout=timeout,
            autoreset_mode="Disabled",
            workers=workers,
            **options,
        )
        self._stepping = self._vector._stepping
        self.compilers = self._vector.compilers
        self.action_space = self._vector.single_action_space

    # ---- Gymnasium's methods ----

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Waits for a compiler that begins an episode. A running episode is abandoned: its compiler
        gets an error.

        Args:
            seed: With workers: selects the module, and those of later episodes. Else unused, since
                compilers connect by themselves.
            options: With workers: {"module": name} selects the module by its name in the corpus.
                There are no other options.

        Returns:
            The observation and the info.

        Raises:
            InvalidError: An unknown option, or no such module. A running episode continues.
            DeadlineError: No compiler connected within the timeout.
            ClosedError: The host is closed.
        """
        super().reset(seed=seed)
        self._vector._begin(np.ones(1, bool), [seed], [options or {}])
        return self._stepping.observation(0), self._stepping.info(0)

    def step(self, action: Any) -> Turn:
        """Sends the compiler an action and waits for its next request.

        Args:
            action: A value, or a dict of several fields.

        Returns:
            observation, reward, terminated, truncated, info.

        Raises:
            InvalidError: As `send`.
            ClosedError: The host is closed.
        """
        self.send(action)
        return self.receive()

    def send(self, action: Any) -> None:
        """As `step`, without waiting: its first half.

        Raises:
            InvalidError: There is no episode, or the action is not valid advice or not in the
                action space. The compiler still waits.
        """
        if isinstance(action, Mapping):
            self._vector.send({name: (each,) for name, each in action.items()})
            return
        space = self.action_space
        discrete = space is None or isinstance(space, gymnasium.spaces.Discrete)
        if not discrete and not space.contains(action):
            raise InvalidError(f"action {action!r}: expected one of {space}")
        if isinstance(action, (int, float, np.generic, np.ndarray)):
            self._vector.send(np.asarray(action)[None])
        else:
            row = np.empty(1, object)
            row[0] = action
            self._vector.send(row)

    def receive(self) -> Turn:
        """The second half of `step`, with its results.

        Raises:
            InvalidError: No action is pending.
            ClosedError: The host is closed.
        """
        s = self._stepping
        self._vector._wait()
        ends = s.terminated.item(), s.truncated.item()
        return s.observation(0), s.rewards.item(), *ends, s.info(0)

    def close(self) -> None:
        """Abandons the episode, and closes the host if it belongs to this environment."""
        self._stepping.close()

    @property
    def observation_space(self) -> Any:
        """The space of the first observation, which is final. Waits for the first compiler.

        Raises:
            DeadlineError: No compiler connected within the timeout.
        """
        return self._vector.single_observation_space

    def action_masks(self) -> Any:
        """The last observation's "action_mask" as bool[actions], for sb3-contrib's MaskablePPO."""
        return self._stepping.features["action_mask"][0].astype(bool)

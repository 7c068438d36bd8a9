"""Several compilers as a vector of Stable-Baselines3: pip install 'shmbridge[sb3]'.

env = CompilerVecEnv("shm://unroll", 4, actions=5)
PPO("MultiInputPolicy", env).learn(100_000)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from shmbridge._compilers import Compilers
from shmbridge._host import Host
from shmbridge.errors import UnsupportedError
from shmbridge.trainer import CompilerVectorEnv

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(
        "this vector needs Stable-Baselines3: pip install 'shmbridge[sb3]'"
    ) from error

MASKS = "action_masks"  # what MaskablePPO asks for


class CompilerVecEnv(VecEnv):  # type: ignore[misc] # Any, for mypy
    """Several compilers at once as a `VecEnv` of Stable-Baselines3.

    Episodes and infos are as in `CompilerEnv`; the next one begins in the same step. Observations are dicts, so take
    MultiInputPolicy. A feature "action_mask" is what sb3-contrib's MaskablePPO takes as its mask. It waits for compilers when it is
    made, since their first observation tells the space.

    Args:
        compilers: As `CompilerVectorEnv`.
        num_envs: How many compilers are stepped at once.
        actions: How many there are, or a space.
        options: As `CompilerVectorEnv`: timeout, workers, the host's.

    Raises:
        DeadlineError: Not enough compilers came within the timeout.
    """

    def __init__(
        self, compilers: Compilers | Host | str, num_envs: int, *, actions: Any, **options: Any
    ) -> None:
        self.vector = CompilerVectorEnv(
            compilers, num_envs, actions=actions, autoreset_mode="SameStep", **options
        )
        try:
            space = self.vector.single_observation_space
            super().__init__(num_envs, space, self.vector.single_action_space)
        except BaseException:
            self.vector.close()
            raise

    def reset(self) -> dict[str, Any]:
        """Waits until a compiler begins an episode in each environment, by the seeds of `seed` and the options of `set_options`.

        Returns:
            The observations, a row for each environment.

        Raises:
            DeadlineError: Not enough compilers came within the timeout.
            ClosedError: The host is closed.
        """
        everyone = np.ones(self.num_envs, bool)
        observations, _ = self.vector._begin(everyone, self._seeds, self._options)
        self.reset_infos = [self.vector._stepping.info(row) for row in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        """Gives each compiler its action.

        Args:
            actions: An array of n rows.

        Raises:
            InvalidError: There is no episode, or one is none of the actions. The compilers still wait.
        """
        self.vector.send(actions)

    def step_wait(self) -> tuple[dict[str, Any], Any, Any, list[dict[str, Any]]]:
        """Waits for what comes of the actions.

        Returns:
            Observations, rewards float32[n], dones bool[n], and a list of infos.

        Raises:
            DeadlineError: Not enough compilers came within the timeout, for the next episodes.
            ClosedError: The host is closed.
        """
        observations, rewards, terminated, truncated, _ = self.vector.receive()
        infos = [self.vector._stepping.info(row) for row in range(self.num_envs)]
        for row, (last, info) in self.vector._ends.items():
            self.reset_infos[row], infos[row] = infos[row], {**info, "terminal_observation": last}
        only_truncated = truncated & ~terminated
        for info, cut in zip(infos, only_truncated.tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return observations, rewards.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        """Gives the episodes up, and closes the host if that is this environment's own."""
        self.vector.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment.

        Args:
            attr_name: Its name. "action_masks" is there where observations have an "action_mask".
            indices: Of environments. None: of all.

        Raises:
            AttributeError: There is none.
        """
        if attr_name == MASKS:
            if "action_mask" not in self.vector._stepping.features:
                raise AttributeError('observations have no "action_mask"')
            return [lambda row=row: self._mask(row) for row in self._get_indices(indices)]
        value = getattr(self.vector, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Environments have no attributes of their own to set.

        Args:
            attr_name: Its name.
            value: Its value.
            indices: Of environments.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"{attr_name}: expected no attribute to set, since it is a compiler")

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **named: Any
    ) -> list[Any]:
        """Calls a method of each environment.

        Args:
            method_name: "action_masks".
            args: Its arguments.
            indices: Of environments. None: of all.
            named: Its arguments by name.

        Raises:
            AttributeError: There is none.
        """
        return [method(*args, **named) for method in self.get_attr(method_name, indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No environment is wrapped: compilers say by themselves what they want to.

        Args:
            wrapper_class: Of Gymnasium's wrappers.
            indices: Of environments. None: of all.
        """
        return [False for _ in self._get_indices(indices)]

    def _mask(self, row: int) -> Any:
        return self.vector._stepping.features["action_mask"][row].astype(bool)

    def _get_indices(self, indices: Any) -> Iterable[int]:
        found: Iterable[int] = super()._get_indices(indices)
        return found

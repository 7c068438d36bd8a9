"""Several compilers as a vector of Stable-Baselines3: pip install 'shmbridge[sb3]'.

From compilers to a file that compilers load::

    env = CompilerVecEnv("shm://unroll", 4, actions=5)
    model = PPO("MultiInputPolicy", env).learn(100_000, callback=TrainingCallback(progress))
    export_onnx(model, "policy.onnx")
"""

from __future__ import annotations

import io
import os
from inspect import signature
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge._episodes.pool import CompilerPool
from shmbridge.envs import CompilerVectorEnv
from shmbridge.errors import UnsupportedError, undone_by
from shmbridge.training import Progress

try:
    import gymnasium
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(
        "this vector needs Stable-Baselines3: pip install 'shmbridge[sb3]'"
    ) from error

__all__ = ["CompilerVecEnv", "TrainingCallback", "export_onnx"]

MASKS = "action_masks"  # what MaskablePPO asks for


class CompilerVecEnv(VecEnv):  # type: ignore[misc] # Any, for mypy
    """Several compilers at once as a `VecEnv` of Stable-Baselines3.

    Episodes and infos are as in `CompilerEnv`; the next one begins in the same step. Observations
    are dicts, so use MultiInputPolicy. sb3-contrib's MaskablePPO uses a feature "action_mask" as
    its mask. The constructor waits for compilers, since their first observation determines the
    space.

    Args:
        compilers, num_envs: As in `CompilerVectorEnv`.
        actions: The number of actions, or a space.
        options: As in `CompilerVectorEnv`: timeout, workers, the host's options.

    Raises:
        DeadlineError: Not enough compilers connected within the timeout.
    """

    def __init__(
        self, compilers: CompilerPool | Host | str, num_envs: int, *, actions: Any, **options: Any
    ) -> None:
        self.vector = CompilerVectorEnv(
            compilers, num_envs, actions=actions, autoreset_mode="SameStep", **options
        )
        self._rows = self.vector._stepping
        with undone_by(self.vector.close):
            space = self.vector.single_observation_space
            super().__init__(num_envs, space, self.vector.single_action_space)

    def reset(self) -> dict[str, Any]:
        """As `CompilerVectorEnv.reset`, with the seeds of `seed` and the options of
        `set_options`."""
        everyone = np.ones(self.num_envs, bool)
        observations, _ = self.vector._begin(everyone, self._seeds, self._options)
        self.reset_infos = [self._rows.info(row) for row in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        """As `CompilerVectorEnv.send`."""
        self.vector.send(actions)

    def step_wait(self) -> tuple[dict[str, Any], Any, Any, list[dict[str, Any]]]:
        """As `CompilerVectorEnv.receive`, but returns observations, rewards float32[n], dones
        bool[n], and a list of infos."""
        observations, rewards, terminated, truncated, _ = self.vector.receive()
        infos = [self._rows.info(row) for row in range(self.num_envs)]
        for row, (last, info) in self.vector._ends.items():
            self.reset_infos[row], infos[row] = infos[row], {**info, "terminal_observation": last}
        only_truncated = truncated & ~terminated
        for info, cut in zip(infos, only_truncated.tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return observations, rewards.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        """As `CompilerVectorEnv.close`."""
        self.vector.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """As `VecEnv.get_attr`. "action_masks" exists if observations have an "action_mask"."""
        if attr_name == MASKS:
            if "action_mask" not in self._rows.features:
                raise AttributeError('observations have no "action_mask"')
            return [lambda row=row: self._mask(row) for row in self._get_indices(indices)]
        value = getattr(self.vector, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """As `VecEnv.set_attr`, but always raises UnsupportedError: there is none to set."""
        raise UnsupportedError(f"{attr_name}: expected no attribute to set, since it is a compiler")

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **named: Any
    ) -> list[Any]:
        """As `VecEnv.env_method`. The only method is "action_masks"."""
        return [method(*args, **named) for method in self.get_attr(method_name, indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """As `VecEnv.env_is_wrapped`: none is."""
        return [False for _ in self._get_indices(indices)]

    def _mask(self, row: int) -> Any:
        return self._rows.features["action_mask"][row].astype(bool)


class TrainingCallback(BaseCallback):  # type: ignore[misc] # Any, for mypy
    """A callback for `model.learn(callback=...)`: reports episodes to a `Progress`, and writes a
    row for each rollout.

    A row also has "steps", and the algorithm's own values, such as "train/loss".

    Args:
        progress: The `Progress`.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def _on_training_start(self) -> None:
        self._returns = np.zeros(self.training_env.num_envs)

    def _on_step(self) -> bool:
        told = self.locals
        self._returns += told["rewards"]
        for row in np.flatnonzero(told["dones"]):
            info = told["infos"][row]
            kind = info.get("kind", "error" if "error" in info else "ok")
            self.progress.add(self._returns[row] if kind == "ok" else np.nan, kind)
            self._returns[row] = 0
        return True

    def _on_rollout_end(self) -> None:
        logged = self.model.logger.name_to_value
        values = {name: value for name, value in logged.items() if name.startswith("train/")}
        self.progress.log(steps=self.num_timesteps, **values)


def export_onnx(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes a trained model as an ONNX file whose inputs are the compiler's features, including
    the statistics of a `VecNormalize`.

    Its output is the model's best action, as `model.predict(..., deterministic=True)` returns it:
    an int64, or float32 of the space's shape. So every compiler can use it, including an unmodified
    LLVM. It is never an action that an "action_mask" forbids. The file and the model are compared
    on random questions, as in `torch.export_onnx`.

    Args:
        model: PPO, A2C, MaskablePPO, DQN, or another algorithm with such a policy. Its actions are
            a `Discrete` or a `Box`.
        path: The ONNX file.

    Raises:
        UnsupportedError: Another policy, or other actions.
        InvalidError: The outputs of the file differ from the model's.
        ImportError: The packages that write ONNX files are not installed.
    """
    from shmbridge.training.torch import export_onnx as export

    policy, space = model.policy, model.observation_space
    known = hasattr(policy, "action_net") or hasattr(policy, "q_net")
    actions = isinstance(model.action_space, (gymnasium.spaces.Discrete, gymnasium.spaces.Box))
    if not (known and actions and hasattr(space, "spaces")) or policy.squash_output:
        raise UnsupportedError(
            "expected a model with MultiInputPolicy, of PPO, A2C, MaskablePPO or DQN, whose "
            "actions are a Discrete or a Box; "
            f"found {type(policy).__name__} over {space} and {model.action_space}"
        )
    binary = gymnasium.spaces.MultiBinary  # what compilers send as bool
    example = {
        name: np.zeros(each.shape, bool if isinstance(each, binary) else each.dtype)
        for name, each in space.spaces.items()
    }
    masked = "action_mask" in example and "action_masks" in signature(policy.forward).parameters
    file = io.BytesIO()  # a copy, on the CPU
    policy.save(file)
    file.seek(0)
    policy = type(policy).load(file, device="cpu")
    export(_Decision(policy, model.get_vec_normalize_env(), masked), path, example)


class _Decision(torch.nn.Module):  # type: ignore[misc] # Any, for mypy
    """A policy of Stable-Baselines3 as a function from observations, as compilers send them, to
    actions."""

    def __init__(self, policy: Any, normalized: Any, masked: bool) -> None:
        super().__init__()
        self.policy, self.normalized, self.masked = policy, normalized, masked

    def forward(self, observations: Any) -> Any:
        seen = {name: self._normal(name, each) for name, each in observations.items()}
        if hasattr(self.policy, "q_net"):
            values = self.policy.q_net(seen)
        else:
            features = self.policy.extract_features(seen, self.policy.pi_features_extractor)
            values = self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))
        space = self.policy.action_space
        if isinstance(space, gymnasium.spaces.Box):
            return values.clamp(torch.as_tensor(space.low), torch.as_tensor(space.high))
        if self.masked:
            allowed = observations["action_mask"].bool()
            values = torch.where(allowed, values, values.amin(dim=1, keepdim=True) - 1)
        return values.argmax(dim=1) + int(space.start)

    def _normal(self, name: str, value: Any) -> Any:
        """As VecNormalize, in float32."""
        env = self.normalized
        if env is None or not env.norm_obs or name not in env.norm_obs_keys:
            return value
        mean, variance = (
            torch.as_tensor(each, dtype=torch.float32)
            for each in (env.obs_rms[name].mean, env.obs_rms[name].var)
        )
        normal = (value.float() - mean) / torch.sqrt(variance + env.epsilon)
        return normal.clamp(-env.clip_obs, env.clip_obs)

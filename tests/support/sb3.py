"""Stand-ins of the classes of Stable-Baselines3 that ours extend, or are held against, where it is
not installed, since it needs PyTorch. They do what its documentation says. tests/envs/test_sb3.py
is the same with either, so `tests/run --models` shows that they do it as the real ones."""

import copy
import importlib
import sys
import types
from unittest import mock

import numpy as np


class VecEnv:
    def __init__(self, num_envs, observation_space, action_space):
        self.num_envs = num_envs
        self.observation_space, self.action_space = observation_space, action_space
        self.reset_infos = [{} for _ in range(num_envs)]
        self._reset_seeds()
        self._reset_options()
        self.render_mode = self.get_attr("render_mode")[0]

    def _reset_seeds(self):
        self._seeds = [None] * self.num_envs

    def _reset_options(self):
        self._options = [{}] * self.num_envs

    def seed(self, seed):
        self._seeds = [seed + i for i in range(self.num_envs)]

    def set_options(self, options):
        self._options = copy.deepcopy([options] * self.num_envs)

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()

    def _get_indices(self, indices):
        return range(self.num_envs) if indices is None else indices


class DummyVecEnv(VecEnv):
    def __init__(self, make):
        self.envs = [each() for each in make]
        first = self.envs[0]
        super().__init__(len(make), first.observation_space, first.action_space)

    def get_attr(self, name):
        return [getattr(env, name) for env in self.envs]

    def reset(self):
        found = [env.reset(seed=seed) for env, seed in zip(self.envs, self._seeds, strict=True)]
        self._reset_seeds()
        return self._stacked([observation for observation, _ in found])

    def _stacked(self, observations):
        return {name: np.stack([each[name] for each in observations]) for name in observations[0]}

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        rows = [self._step(*pair) for pair in zip(self.envs, self.actions, strict=True)]
        observations, rewards, dones, infos = zip(*rows, strict=True)
        return self._stacked(observations), np.float32(rewards), np.array(dones), [*infos]

    def _step(self, env, action):
        observation, reward, terminated, truncated, info = env.step(action)
        info["TimeLimit.truncated"] = truncated and not terminated
        if terminated or truncated:
            info["terminal_observation"] = observation
            observation, _ = env.reset()
        return observation, reward, terminated or truncated, info


class BaseCallback:
    num_timesteps = 0

    def init_callback(self, model):
        self.model = model

    @property
    def training_env(self):
        return self.model.get_env()

    def on_training_start(self, variables, _):
        self.locals = variables
        self._on_training_start()

    def on_step(self):
        self.num_timesteps = self.model.num_timesteps
        return self._on_step()

    def on_rollout_end(self):
        self._on_rollout_end()


def load():
    """shmbridge.envs.sb3, and a DummyVecEnv: the real ones, or over these classes."""
    try:
        import stable_baselines3.common.vec_env as real

        import shmbridge.envs.sb3 as ours

        return ours, real.DummyVecEnv
    except ImportError:
        importlib.import_module("shmbridge.training")  # so that only ours is gone again

        names = ["stable_baselines3", "stable_baselines3.common", "torch"]
        modules = {name: types.ModuleType(name) for name in names}
        for name, members in {
            "stable_baselines3.common.callbacks": {"BaseCallback": BaseCallback},
            "stable_baselines3.common.vec_env": {"VecEnv": VecEnv},
        }.items():
            modules[name] = types.SimpleNamespace(**members)
        modules["torch"].nn = types.SimpleNamespace(Module=object)
        with mock.patch.dict(sys.modules, modules):
            import shmbridge.envs.sb3 as ours
        return ours, DummyVecEnv

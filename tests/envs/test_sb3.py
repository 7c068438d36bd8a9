"""Compilers as a vector of Stable-Baselines3, held against its own."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support.workers import GymWorkers

pytest.importorskip("stable_baselines3", reason="its own package is tested against")

from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from shmbridge import UnsupportedError
from shmbridge.envs import CompilerEnv
from shmbridge.envs.sb3 import CompilerVecEnv

BOUND = 20


class Steps(gymnasium.Env):
    """Counts to a number that the seed chooses; actions below the count's last digit are masked."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(-np.inf, np.inf, (1,)), "action_mask": spaces.MultiBinary(3)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.end = 0, int(self.np_random.integers(3, 9))
        return self.observe(), {}

    def observe(self):
        mask = np.arange(3) >= self.at % 3
        return {"at": np.array([self.at], np.float32), "action_mask": mask}

    def step(self, action):
        self.at += 1
        return self.observe(), float(action), self.at == self.end, False, {}


@pytest.fixture
def make(new_name):
    """make(n, **options): a vector over n threads that have Steps."""
    with contextlib.ExitStack() as stack:

        def vector(n, **options):
            workers = GymWorkers(Steps, max_steps=options.pop("max_steps", None))
            env = CompilerVecEnv(
                new_name(), n, actions=3, timeout=BOUND, workers=workers, **options
            )
            return stack.enter_context(contextlib.closing(env))

        yield vector


def test_it_steps_as_sb3s_own_vector_does(make):
    ours, theirs = make(2), DummyVecEnv([Steps] * 2)
    ours.seed(7)
    theirs.seed(7)
    assert same(ours.reset(), theirs.reset())
    over = np.zeros(2, bool)
    while not over.all():
        found, expected = (env.step(np.array([2, 1])) for env in (ours, theirs))
        for row in np.flatnonzero(~over):
            assert found[1][row] == expected[1][row] and found[2][row] == expected[2][row]
            info, other = found[3][row], expected[3][row]
            assert info["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            assert ("terminal_observation" in info) == ("terminal_observation" in other)
            if "terminal_observation" in info:
                assert same(info["terminal_observation"], other["terminal_observation"])
        assert found[1].dtype == expected[1].dtype and found[2].dtype == expected[2].dtype
        over |= found[2]


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_an_episode_that_is_too_long_says_so(make):
    env = make(1, max_steps=2)
    env.reset()
    env.step(np.array([2]))
    _, _, dones, infos = env.step(np.array([2]))
    # a compilation that ends in order is over; what its driver cut short is told by the compiler
    assert dones.all() and infos[0]["terminal_observation"]["at"] == [2]


def test_ppo_learns_over_it(make):
    env = VecNormalize(VecMonitor(make(2)), norm_obs_keys=["at"])
    model = PPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=1)
    model.learn(128)
    assert model.num_timesteps == 128 and len(model.ep_info_buffer) > 5


def test_maskable_ppo_takes_its_masks(make):
    MaskablePPO = pytest.importorskip("sb3_contrib", reason="it has MaskablePPO").MaskablePPO
    env = make(2)
    model = MaskablePPO("MultiInputPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=1)
    model.learn(64)
    masks = env.env_method("action_masks")
    assert len(masks) == 2 and all(mask.dtype == bool and mask.any() for mask in masks)


def test_sb3s_check_passes_for_one_compiler(name):
    workers = GymWorkers(Steps)
    env = CompilerEnv(name, actions=3, timeout=BOUND, workers=workers)
    with contextlib.closing(env):
        check_env(env)


def test_there_is_nothing_to_set(make):
    env = make(1)
    assert env.get_attr("render_mode") == [None] and env.env_is_wrapped(gymnasium.Wrapper) == [
        False
    ]
    with pytest.raises(UnsupportedError):
        env.set_attr("x", 1)
    with pytest.raises(AttributeError):
        env.get_attr("nothing")

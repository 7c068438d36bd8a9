"""Compilers as a vector of Stable-Baselines3, held against its own; where that is not installed,
against stand-ins (support/sb3.py)."""

import contextlib
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support import sb3
from support.workers import GymWorkers

from shmbridge import UnsupportedError, connect
from shmbridge.envs import CompilerEnv
from shmbridge.training import Progress

BOUND = 20
ours, DummyVecEnv = sb3.load()


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
            env = ours.CompilerVecEnv(
                new_name(), n, actions=3, timeout=BOUND, workers=workers, **options
            )
            return stack.enter_context(contextlib.closing(env))

        yield vector


def test_it_steps_as_sb3s_own_vector_does(make):
    env, theirs = make(2), DummyVecEnv([Steps] * 2)
    env.seed(7)
    theirs.seed(7)
    assert same(env.reset(), theirs.reset())
    over = np.zeros(2, bool)
    while not over.all():
        found, expected = (each.step(np.array([2, 1])) for each in (env, theirs))
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


def test_an_episode_is_cut_short_unless_it_is_done(name, in_thread):
    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            for done in (False, True):
                runner.evaluate({"x": np.float32(done)})
                report = {"reward": 2.0, "done": done, "truncated": True, "step": 1}
                runner.evaluate({"x": np.float32(2 + done), **report})
            runner.evaluate({"x": np.float32(9)})

    asking = in_thread(compiler)
    with contextlib.closing(ours.CompilerVecEnv(name, 1, actions=2, timeout=BOUND)) as env:
        assert env.reset()["x"] == [0]
        for done, following in ((False, 1), (True, 9)):
            observations, rewards, dones, (info,) = env.step(np.array([1]))
            assert (observations["x"], rewards, dones) == ([following], [2], [True])
            assert info["TimeLimit.truncated"] is not done
            assert info["terminal_observation"]["x"] == 2 + done and info["step"] == 1
            assert env.reset_infos == [{"step": 0}]
        env.step_async(np.array([0]))
        asking.result()


def test_masks_are_those_of_each_environment(make):
    env = make(2)
    env.reset()
    env.step(np.array([0, 0]))
    assert [mask.tolist() for mask in env.env_method("action_masks")] == [[False, True, True]] * 2
    assert len(env.env_method("action_masks", indices=[1])) == 1


def test_a_callback_adds_episodes_to_a_progress(tmp_path):
    logger = SimpleNamespace(name_to_value={"train/loss": 0.5, "time/fps": 1})
    env = SimpleNamespace(num_envs=2)
    model = SimpleNamespace(get_env=lambda: env, num_timesteps=7, logger=logger)
    with Progress(tmp_path / "rows.csv", total=3) as progress:
        callback = ours.TrainingCallback(progress)
        callback.init_callback(model)
        told = {"rewards": np.array([1.0, 2.0]), "dones": np.array([False, True])}
        told["infos"] = [{}, {"error": "it died"}]
        callback.on_training_start(told, {})
        assert callback.on_step() and progress.episodes == 1
        told["dones"][:] = True
        told["infos"][1] = {"kind": "ok"}
        assert callback.on_step() and progress.episodes == 3  # `learn` has its own limit
        callback.on_rollout_end()
    header, row = (tmp_path / "rows.csv").read_text().splitlines()
    values = dict(zip(header.split(","), row.split(","), strict=True))
    assert (values["steps"], values["train/loss"]) == ("7", "0.5") and "time/fps" not in values
    assert float(values["reward"]) == 2.0  # the mean of 1 + 1 and 2; the failure has none


def test_ppo_learns_over_it(make):
    PPO = pytest.importorskip("stable_baselines3", reason="it has PPO").PPO
    from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

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
    pytest.importorskip("stable_baselines3", reason="it has a check")
    from stable_baselines3.common.env_checker import check_env

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

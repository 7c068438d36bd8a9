"""Environments whose compilers are their own: seeds choose the programs, and an episode is a
compilation."""

import contextlib
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.environments import Corridor, Plain
from support.workers import GymWorkers

from shmbridge import InvalidError
from shmbridge.envs import CompilerEnv, CompilerVectorEnv
from shmbridge.rl import Agent, Environment, drive

BOUND = 20


def cartpole():
    return gymnasium.make("CartPole-v1").unwrapped


def environment(name, workers, **options):
    return contextlib.closing(
        CompilerEnv(name, actions=2, timeout=BOUND, workers=workers, **options)
    )


def vector(name, workers, n, **options):
    return contextlib.closing(
        CompilerVectorEnv(name, n, actions=2, timeout=BOUND, workers=workers, **options)
    )


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_cartpole_behind_the_bridge_is_cartpole(name, mode):
    """Number for number, until each one's second episode, whose seed is drawn otherwise."""
    theirs = SyncVectorEnv([cartpole] * 3, autoreset_mode=mode)
    actions = np.random.default_rng(5).integers(0, 2, (40, 3))
    with vector(name, GymWorkers(cartpole), 3, autoreset_mode=mode) as ours:
        a, b = ours.reset(seed=11)[0]["observation"], theirs.reset(seed=11)[0]
        over = np.zeros(3, bool)
        assert np.array_equal(a, b)
        for action in actions:
            found, rewards, terminations, *_ = ours.step(action)
            expected, *reward, _, _ = theirs.step(action)
            first = ~over
            assert np.array_equal(rewards[first], reward[0][first])
            assert np.array_equal(terminations[first], reward[1][first])
            over |= terminations
            same = ~over if mode == AutoresetMode.SAME_STEP else first
            assert np.array_equal(found["observation"][same], expected[same])
        assert over.all()


class Ahead(GymWorkers):
    """The next compiler of environment 1 starts early."""

    early = ""

    def begin(self, env, seed=None, options=None):
        if env == 0:
            return super().begin(env, options={"module": env})
        label = self.early or super().begin(env, options={"module": env})
        self.early = super().begin(env, options={"module": env})
        return label

    def ahead(self, label):
        return label == self.early


class Steps(Environment):
    """So many steps, each with a reward of so much. The observation is the module."""

    def __init__(self, module, steps, reward):
        self.module, self.steps, self.reward = module, steps, reward

    def reset(self):
        return {"module": np.int64(self.module)}

    def step(self, action):
        self.steps -= 1
        self.add_reward(self.reward)
        if not self.steps:
            self.set_done()
        return self.reset()


def test_a_compiler_that_started_ahead_waits_for_its_own_environment(name):
    """Environment 0 begins episodes while the early compiler of environment 1 waits."""
    rewards = np.array([0.25, 4.0])

    def compile(runner, seed, options):
        module = options["module"]
        if module == 0:
            time.sleep(0.1)  # the early one of environment 1 asks first
        drive(Steps(module, module + 1, rewards[module]), Agent(runner))

    with vector(name, Ahead(compile=compile), 2) as env:
        assert env.reset()[0]["module"].tolist() == [0, 1]
        over = np.zeros(2, int)
        while over.min() < 3:
            observations, found, terminations, truncations, _ = env.step([0, 0])
            assert observations["module"].tolist() == [0, 1]
            assert found[terminations].tolist() == rewards[terminations].tolist()
            assert not truncations.any()
            over += terminations


def test_options_reach_the_workers(name):
    workers = GymWorkers(cartpole)
    with environment(name, workers) as env:
        env.reset(seed=1, options={"module": "a.c"})
        env.reset(seed=2)
        env.reset()
    seeds = [seed for _, seed, _ in workers.begun]
    assert workers.begun[0] == (0, 1, {"module": "a.c"}) and seeds[1] == 2 and seeds[2] is not None


def test_the_end_of_the_compiler_is_the_end_of_the_episode_with_its_outcome(name):
    """One that drives twice, and one that asks for advice alone."""

    def compile(runner, seed, options):
        if seed == 1:
            for kind in (Plain, Corridor):
                drive(kind(), Agent(runner))
        else:
            for i in range(3):
                runner.evaluate({"cell": np.full(5, i, np.float32)})

    with environment(name, GymWorkers(compile=compile)) as env:
        env.reset(seed=1)
        turns = [env.step(1) for _ in range(8)]
        assert [turn[2] for turn in turns] == [False] * 7 + [True]
        assert round(sum(turn[1] for turn in turns), 2) == 1.92
        assert turns[-1][4]["exit"] == 0 and turns[-1][4]["scores"] == {"seed": 1}
        env.reset(seed=2)
        turns = [env.step(1) for _ in range(3)]
        assert [turn[2] for turn in turns] == [False, False, True]
        assert turns[-1][4]["kind"] == "ok"


def test_several_runners_of_a_compiler_are_one_episode(name):
    """As a compiler whose passes each open their own."""
    from shmbridge import connect

    workers = GymWorkers()

    def compile(runner, seed, options):
        runner.evaluate({"x": np.float32(1)})
        with connect(workers.url, label="0-0", connect_timeout=BOUND) as second:
            second.evaluate({"x": np.float32(2)})
            runner.evaluate({"x": np.float32(3)})
        runner.evaluate({"x": np.float32(4)})

    workers.compile = compile
    with environment(name, workers) as env:
        seen = [env.reset(seed=1)[0]["x"].item()]
        over = False
        while not over:
            observation, _, over, truncated, _ = env.step(0)
            seen.append(observation["x"].item())
        assert seen == [1, 2, 3, 4, 4] and not truncated


def test_a_chosen_compiler_that_asks_nothing_is_an_error_at_once(name):
    silent = GymWorkers(compile=lambda *_: None)
    with (
        environment(name, silent) as env,
        pytest.raises(InvalidError, match="asked nothing: 1; the last"),
    ):
        env.reset(options={"module": "a.c"})


def test_a_compiler_of_nobodys_is_refused(name, in_thread):
    from shmbridge import ModelError, connect

    def stranger():
        with connect(name, connect_timeout=BOUND) as runner:
            runner.evaluate({"observation": np.zeros(4, np.float32)})

    with environment(name, GymWorkers(cartpole)) as env:
        asking = in_thread(stranger)
        while asking.is_alive():
            env.reset()
        with pytest.raises(ModelError, match="no such episode"):
            asking.result()

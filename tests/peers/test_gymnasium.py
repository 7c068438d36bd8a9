"""Gymnasium's own measure of speed takes ours."""

import contextlib

import pytest
from gymnasium.utils.performance import benchmark_step, benchmark_vector_step
from gymnasium.vector import AutoresetMode
from support.workers import GymWorkers

from shmbridge.envs import CompilerEnv, CompilerVectorEnv


def cartpole():
    import gymnasium

    return gymnasium.make("CartPole-v1").unwrapped


@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasium_measures_its_speed(name, mode):
    env = CompilerVectorEnv(
        name, 2, actions=2, timeout=20, autoreset_mode=mode, workers=GymWorkers(cartpole)
    )
    with contextlib.closing(env):
        assert benchmark_vector_step(env, target_duration=0.2, seed=1) > 0


def test_gymnasium_measures_a_single_ones_speed(name):
    env = CompilerEnv(name, actions=2, timeout=20, workers=GymWorkers(cartpole))
    with contextlib.closing(env):
        assert benchmark_step(env, target_duration=0.2, seed=1) > 0

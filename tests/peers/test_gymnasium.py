"""Gymnasium's own tests of vectors, with ours in the place of AsyncVectorEnv: $GYMNASIUM_SOURCE is
a checkout of Gymnasium. And its measure of speed."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gymnasium.utils.performance import benchmark_step, benchmark_vector_step
from gymnasium.vector import AutoresetMode
from support.workers import GymWorkers

from shmbridge.envs import CompilerEnv, CompilerVectorEnv

# Left out are texts, graphs and the like as observations, what an environment says in its info, and
# generators of sub-environments: a compiler sends none of them.
TESTS = [
    "test_autoreset_next_step",
    "test_autoreset_within_step",
    "test_autoreset_disabled",
    "test_autoreset_metadata",
    "test_vector_env_equal",
    "test_partial_reset",
    "test_partial_reset_failure",
    "test_action_count_compatibility",
]


def test_gymnasiums_tests_of_vectors_pass(tmp_path):
    source = os.environ.get("GYMNASIUM_SOURCE")
    if not source:
        pytest.skip("GYMNASIUM_SOURCE names no checkout of Gymnasium")
    files = [f"tests/vector/{name}.py" for name in ("test_autoreset_mode", "test_vector_env")]
    chosen = f"({' or '.join(TESTS)}) and (Async or equal)"
    plugin = ["-p", "gymnasium_vectors", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", *plugin, "--timeout=20", "-k", chosen, *files],
        cwd=source,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), source])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "22 passed" in done.stdout, done.stdout[-400:]


def cartpole():
    import gymnasium

    return gymnasium.make("CartPole-v1").unwrapped


@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasium_measures_its_speed(name, mode):
    env = CompilerVectorEnv(
        name,
        2,
        actions=2,
        timeout=20,
        autoreset_mode=mode,
        workers=GymWorkers(cartpole),
    )
    with contextlib.closing(env):
        assert benchmark_vector_step(env, target_duration=0.2, seed=1) > 0


def test_gymnasium_measures_a_single_ones_speed(name):
    env = CompilerEnv(name, actions=2, timeout=20, workers=GymWorkers(cartpole))
    with contextlib.closing(env):
        assert benchmark_step(env, target_duration=0.2, seed=1) > 0

"""TorchRL: what docs/trainer-libraries.md shows."""

import pytest


def test_torchrl(compilers):
    envs = pytest.importorskip("torchrl.envs", reason="needs torchrl: bash tests/run --ray")
    vector = compilers({"num_envs": 2, "autoreset_mode": "Disabled"})
    env = envs.GymWrapper(vector)
    episodes = env.rollout(40, break_when_any_done=False)
    assert episodes["next", "reward"].shape == (2, 40, 1)
    env.close()
    vector.close()

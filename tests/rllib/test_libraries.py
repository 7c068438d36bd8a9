"""TorchRL, and PufferLib where it is installed: what docs/trainer-libraries.md shows."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "trainer-libraries.md").read_text()


def test_torchrl(compilers):
    envs = pytest.importorskip("torchrl.envs", reason="needs torchrl: bash tests/run --ray")
    vector = compilers({"num_envs": 2, "autoreset_mode": "Disabled"})
    env = envs.GymWrapper(vector)
    episodes = env.rollout(40, break_when_any_done=False)
    assert episodes["next", "reward"].shape == (2, 40, 1)
    env.close()
    vector.close()


def test_pufferlib(compilers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # its import makes a link
    pufferlib = pytest.importorskip("pufferlib", reason="needs PufferLib 3")
    from pufferlib import vector

    (code,) = re.findall(r"```python[^\n]*\n(import pufferlib.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(code, names)
    env = vector.make(
        names["Puffer"],
        env_args=[lambda: compilers({"num_envs": 2, "autoreset_mode": "SameStep"}), "state"],
        backend=pufferlib.PufferEnv,
    )
    env.async_reset(seed=1)
    total = np.zeros(2)
    for _ in range(40):
        observations, rewards, terminals, truncations, *_ = env.recv()
        assert observations.shape == (2, 8) and (observations.sum(axis=1) <= 1).all()
        total += rewards
        env.send(np.full(2, 2))  # removes what is dead, and that is all that it does
    assert (total != 0).all()
    env.close()

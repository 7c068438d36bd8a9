"""Trains a policy with PPO: sb3-contrib's MaskablePPO on the vector of compilers."""

from __future__ import annotations

import time

import numpy as np
import torch
from policy import COUNTERS, INSTRUCTIONS, SCALE, Policy, prior
from sb3_contrib import MaskablePPO
from search import ACTIONS, make_task
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from shmbridge.corpus import Corpus
from shmbridge.sb3 import CompilerVecEnv
from shmbridge.workers import Workers

ENVS = 4  # compilers at once: opt computes while another waits for the network


class Features(BaseFeaturesExtractor):
    """As Policy.logits has them."""

    def __init__(self, space) -> None:
        super().__init__(space, 2 * COUNTERS + len(ACTIONS))

    def forward(self, observation: dict[str, torch.Tensor]) -> torch.Tensor:
        counters = observation["counters"]
        relative = counters / (counters[:, INSTRUCTIONS : INSTRUCTIONS + 1] + 1)
        return torch.cat([torch.log(counters + 1) / SCALE, relative, observation["used"]], dim=1)


class Curve(BaseCallback):
    """The mean reward of episodes, after each of PPO's updates."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.rows: list[tuple[int, float, float]] = []  # compilations, their mean reward, seconds
        self._began, self._seconds = time.monotonic(), seconds
        self._rewards: list[float] = []
        self._sums = np.zeros(ENVS)
        self._count = 0

    def _on_step(self) -> bool:
        self._sums += self.locals["rewards"]
        for i in np.flatnonzero(self.locals["dones"]):
            self._rewards.append(float(self._sums[i]))
            self._sums[i] = 0
        return time.monotonic() - self._began < self._seconds

    def _on_rollout_end(self) -> None:
        self._count += len(self._rewards)
        self.rows.append(
            (self._count, float(np.mean(self._rewards)), time.monotonic() - self._began)
        )
        self._rewards = []


def train(programs: Corpus, seed: int, compilations: int, seconds: float) -> tuple[Policy, Curve]:
    """A policy after so many compilations, or so many seconds, whatever comes first."""
    torch.set_num_threads(1)
    workers = Workers(make_task(), programs.sampler(seed))
    env = CompilerVecEnv("shm://phase-ordering-train", ENVS, actions=len(ACTIONS), workers=workers)
    try:
        model = MaskablePPO(
            "MultiInputPolicy",
            env,
            n_steps=512,
            batch_size=256,
            n_epochs=8,
            learning_rate=5e-4,
            gamma=1.0,
            gae_lambda=0.95,
            ent_coef=0.003,
            seed=seed,
            policy_kwargs={"features_extractor_class": Features, "net_arch": [64, 64]},
        )
        with torch.no_grad():
            model.policy.action_net.bias += torch.from_numpy(prior())
        curve = Curve(seconds)
        model.learn(compilations * len(ACTIONS), callback=curve)
    finally:
        env.close()
    hidden = [layer for layer in model.policy.mlp_extractor.policy_net if hasattr(layer, "weight")]
    layers = [*hidden, model.policy.action_net]
    return Policy(
        [
            (layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy())
            for layer in layers
        ]
    ), curve

"""The same with Stable-Baselines3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import stable_baselines3
import torch
from environment import PASSES, task
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from shmbridge.corpus import Corpus
from shmbridge.progress import Progress
from shmbridge.sb3 import CompilerVecEnv, TrainingCallback, export_onnx
from shmbridge.workers import Workers

OPTIONS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 24, "batch_size": 96, "n_epochs": 8, "learning_rate": 0.003},
    "A2C": {"n_steps": 8, "learning_rate": 0.003},
}


class Logarithms(BaseFeaturesExtractor):  # type: ignore[misc]
    """As `observe` of loop.py: SB3 standardises nothing by itself."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, space["counters"].shape[0] + space["used"].shape[0])

    def forward(self, observations: Any) -> Any:
        counters = torch.log1p(observations["counters"]) / 5
        return torch.cat([counters, observations["used"]], dim=1)


def learn(algorithm: str, corpus: Corpus, seed: int, progress: Progress, onnx: Path) -> None:
    """Learns until the progress has all its episodes, and writes the ONNX file."""
    torch.set_num_threads(1)
    workers = Workers(task(), corpus.sampler(seed))
    name = f"shm://four-passes-{os.getpid()}-{seed}"
    env = CompilerVecEnv(name, 4, actions=len(PASSES), workers=workers)
    try:
        policy = {"features_extractor_class": Logarithms}
        model = getattr(stable_baselines3, algorithm)(
            "MultiInputPolicy",
            env,
            gamma=1.0,
            ent_coef=0.02,
            seed=seed,
            policy_kwargs=policy,
            device="cpu",
            **OPTIONS[algorithm],
        )
        model.learn(1_000_000, callback=TrainingCallback(progress))
        export_onnx(model, onnx)
    finally:
        env.close()

"""The same with Stable-Baselines3."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import stable_baselines3
import torch
from environment import PASSES, task
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from shmbridge.envs.sb3 import CompilerVecEnv, TrainingCallback, export_onnx
from shmbridge.training import Corpus, Progress, Workers

OPTIONS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 24, "batch_size": 96, "n_epochs": 8, "learning_rate": 0.003},
    "A2C": {"n_steps": 8, "learning_rate": 0.003},
}


class Logarithms(BaseFeaturesExtractor):  # type: ignore[misc]
    """Like `observe` in loop.py: SB3 does not normalise observations."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, space["counters"].shape[0] + space["used"].shape[0])

    def forward(self, observations: Any) -> Any:
        counters = torch.log1p(observations["counters"]) / 5
        return torch.cat([counters, observations["used"]], dim=1)


class Saving(TrainingCallback):
    """Also saves the model before each rollout, and at the end, after so many compilations."""

    def __init__(self, progress: Progress, path: Path, compilations: int) -> None:
        super().__init__(progress)
        self.path, self.compilations = path, compilations

    def _on_step(self) -> bool:
        return super()._on_step() and self.progress.episodes < self.compilations

    def _on_rollout_start(self) -> None:
        saved, new = io.BytesIO(), self.path.with_suffix(".new")
        self.model.save(saved)
        new.write_bytes(pickle.dumps((saved.getvalue(), self.progress.rows)))
        new.replace(self.path)  # at once: a kill leaves the old file or the new one

    _on_training_end = _on_rollout_start


def learn(algorithm: str, corpus: Corpus, seed: int, compilations: int, curve: Path) -> None:
    """Learns from this many compilations, or continues a killed run, and writes the ONNX file next
    to the curve."""
    torch.set_num_threads(1)
    kind, kept = getattr(stable_baselines3, algorithm), curve.with_suffix(".checkpoint")
    workers = Workers(task(), corpus.sampler(seed))
    name = f"shm://four-passes-{os.getpid()}-{seed}"
    env = CompilerVecEnv(name, 4, actions=len(PASSES), workers=workers)
    try:
        if kept.exists():
            saved, rows = pickle.loads(kept.read_bytes())
            model = kind.load(io.BytesIO(saved), env=env)
        else:
            model, rows = make(kind, env, seed, **OPTIONS[algorithm]), []
        with Progress(curve, total=compilations, rows=rows) as progress:
            callback = Saving(progress, kept, compilations)
            model.learn(1_000_000, callback=callback, reset_num_timesteps=False)
        export_onnx(model, curve.with_suffix(".onnx"))
    finally:
        env.close()


def make(kind: Any, env: CompilerVecEnv, seed: int, **options: Any) -> Any:
    """An untrained model."""
    policy = {"features_extractor_class": Logarithms}
    common = {"gamma": 1.0, "ent_coef": 0.02, "seed": seed, "device": "cpu"}
    return kind("MultiInputPolicy", env, policy_kwargs=policy, **common, **options)

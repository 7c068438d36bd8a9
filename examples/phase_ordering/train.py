"""Trains a policy in numpy: PPO whose advantages compare compilations of the same module.

Each update compiles some modules several times each. A compilation's advantage is its value minus
the mean of its module's, in units of their spread, so no value function is needed (group-relative
advantages: Shao et al., DeepSeekMath, 2024). The rest is PPO's clipped objective (Schulman et al.,
2017).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from policy import Policy
from search import steps_of

from shmbridge.training import Corpus, Episode, Task, collect

EPOCHS, ROWS, CLIP, RATE = 4, 256, 0.2, 2e-3
LEAST = 0.005  # a spread of rewards that matters: half a percent


def train(
    programs: Corpus,
    task: Task,
    reward: Callable[..., float],
    seed: int,
    updates: int,
    modules: int = 8,
    samples: int = 8,
) -> Iterator[tuple[Policy, dict[str, float]]]:
    """Yields the policy and figures after each update; each update compiles this many modules this
    many times."""
    policy, random = Policy.untrained(seed), np.random.default_rng(seed)
    sampler, step, began = programs.sampler(seed), adam(policy), time.monotonic()
    for update in range(updates):
        chosen = [m for m in itertools.islice(sampler, modules) for _ in range(samples)]
        compiled = list(collect(sampling(policy, seed, update), task, chosen, reward=reward))
        episodes = [episode for episode in compiled if np.isfinite(episode.reward)]
        rows = experience(policy, episodes)
        for _ in range(EPOCHS):
            order = random.permutation(len(rows["action"]))
            for part in np.array_split(order, max(1, len(order) // ROWS)):
                step(gradient(policy, {name: values[part] for name, values in rows.items()}))
        figures = {
            "compilations": (update + 1) * len(chosen),
            "reward": float(np.mean([episode.reward for episode in episodes])),
            "seconds": time.monotonic() - began,
        }
        yield policy, figures


def sampling(policy: Policy, seed: int, update: int) -> Callable[[Any], Any]:
    """Draws actions. A compilation's draws depend only on its number, not on when the compiler
    asks."""

    def choose(batch: Any) -> np.ndarray:
        logits = policy.logits(batch)
        keys = [
            (seed, update, int(label.rpartition("@")[2]), step)
            for label, step in zip(batch.labels, steps_of(batch), strict=True)
        ]
        return (
            logits + [np.random.default_rng(key).gumbel(size=logits.shape[1]) for key in keys]
        ).argmax(axis=1)

    return choose


def experience(policy: Policy, episodes: list[Episode]) -> dict[str, np.ndarray]:
    """All steps of the episodes, a row each."""
    episodes = sorted(episodes, key=lambda e: (e.module.name, e.reward))  # they ended in any order
    same = [list(group) for _, group in itertools.groupby(episodes, key=lambda e: e.module.name)]
    rewards = [np.array([episode.reward for episode in group]) for group in same]
    advantages = np.concatenate([(r - r.mean()) / (r.std() + LEAST) for r in rewards])
    observed = {
        name: np.concatenate([e.features[name] for e in episodes])
        for name in ("counters", "used", "action_mask")
    }
    action = np.concatenate([e.advice["advice"] for e in episodes])
    return {
        **observed,
        "action": action,
        "log_probability": log_softmax(policy.logits(observed))[np.arange(len(action)), action],
        "advantage": np.repeat(advantages, [len(episode) for episode in episodes]),
    }


def gradient(policy: Policy, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The gradient of PPO's loss for each of the network's arrays."""
    every, action, advantage = np.arange(len(rows["action"])), rows["action"], rows["advantage"]
    logs = log_softmax(policy.logits(rows))
    ratio = np.exp(logs[every, action] - rows["log_probability"])
    clipped = np.where(advantage > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    chosen = np.zeros_like(logs)
    chosen[every, action] = 1
    back = ((chosen - np.exp(logs)) * -(advantage * ratio * ~clipped)[:, None] / len(every)).astype(
        np.float32
    )
    return backward(policy, policy.inputs(rows), back)


def backward(policy: Policy, x: np.ndarray, back: np.ndarray) -> list[np.ndarray]:
    """The gradient of a loss for each of the network's arrays, from that for its outputs, of the
    inputs x."""
    outputs = [x]
    for weights, biases in policy.layers[:-1]:
        outputs.append(np.tanh(outputs[-1] @ weights + biases))
    gradients = []
    for (weights, _), x in zip(reversed(policy.layers), reversed(outputs), strict=True):
        gradients[:0] = [x.T @ back, back.sum(axis=0)]
        back = (back @ weights.T) * (1 - x**2)
    return gradients


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def adam(policy: Policy) -> Callable[[list[np.ndarray]], None]:
    """Changes the policy's arrays by their gradients (Kingma and Ba, 2015)."""
    arrays = [array for layer in policy.layers for array in layer]
    means, squares = [np.zeros_like(a) for a in arrays], [np.zeros_like(a) for a in arrays]
    counts = itertools.count(1)

    def step(gradients: list[np.ndarray]) -> None:
        count = next(counts)
        for array, mean, square, gradient in zip(arrays, means, squares, gradients, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            array -= (
                RATE * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)
            )

    return step

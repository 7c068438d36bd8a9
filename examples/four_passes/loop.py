"""A learner in numpy: proximal policy optimisation of a network with one hidden layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmbridge.training import Progress

HIDDEN, RATE, EPOCHS, CLIP, ENTROPY, BATCH = 64, 0.003, 8, 0.2, 0.02, 24


def observe(observation: Any) -> Any:
    """float32[n, 109]: logarithms of the counters, uses of each pass, and a 1."""
    counters, used = np.log1p(observation["counters"]) / 5, observation["used"]
    return np.concatenate([counters, used, np.ones((len(used), 1))], axis=1).astype(np.float32)


class Policy:
    """A network of two matrices. `probabilities` are of actions; `improve` learns from a batch."""

    def __init__(self, inputs: int, actions: int, random: np.random.Generator) -> None:
        first = random.standard_normal((inputs, HIDDEN)) / np.sqrt(inputs)
        self.weights = [first.astype(np.float32), np.zeros((HIDDEN, actions), np.float32)]
        self.moments = [[np.zeros_like(w), np.zeros_like(w)] for w in self.weights]
        self.updates = 0

    def probabilities(self, x: Any) -> Any:
        self.hidden = np.tanh(x @ self.weights[0])
        logits = self.hidden @ self.weights[1]
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def improve(self, x: Any, actions: Any, before: Any, advantage: Any) -> None:
        rows = np.arange(len(x))
        for _ in range(EPOCHS):
            p = self.probabilities(x)
            ratio = p[rows, actions] / before
            far = np.where(advantage > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
            up = -p * (advantage * ratio * ~far)[:, None]
            up[rows, actions] += advantage * ratio * ~far
            log = np.log(p + 1e-9)
            up -= ENTROPY * p * (log - (p * log).sum(axis=1, keepdims=True))
            back = (up @ self.weights[1].T) * (1 - self.hidden**2)
            slopes = [x.T @ back / len(x), self.hidden.T @ up / len(x)]
            self.updates += 1
            for w, g, m in zip(self.weights, slopes, self.moments, strict=True):  # Adam
                m[0] += 0.1 * (g - m[0])
                m[1] += 0.001 * (g * g - m[1])
                scale = np.sqrt(m[1] / (1 - 0.999**self.updates)) + 1e-8
                w += RATE * m[0] / (1 - 0.9**self.updates) / scale


def learn(env: Any, episodes: int, seed: int, progress: Progress) -> Policy:
    """Learns from this many compilations. A step's advantage is the later reward minus the
    program's recent mean."""
    random, observations = np.random.default_rng(seed), env.reset(seed=seed)[0]
    policy = Policy(observe(observations).shape[1], env.single_action_space.n, random)
    under_way, batch, known = [[] for _ in range(env.num_envs)], [], {}
    while progress.episodes < episodes:
        x = observe(observations)
        p = policy.probabilities(x)
        actions = (p.cumsum(axis=1) > random.random((len(p), 1))).argmax(axis=1)
        observations, rewards, *ends, infos = env.step(actions)
        for i, steps in enumerate(under_way):
            steps.append((x[i], actions[i], p[i, actions[i]], rewards[i]))
        for i in np.flatnonzero(ends[0]):
            follows = np.cumsum([step[3] for step in under_way[i]][::-1])[::-1]
            for number, (step, value) in enumerate(zip(under_way[i], follows, strict=True)):
                mean = known.setdefault((infos["final_info"]["module"][i], number), [value])
                batch.append((*step[:3], value - np.mean(mean[-20:])))
                mean.append(value)
        for i in np.flatnonzero(ends[0] | ends[1]):
            kind = infos["final_info"]["kind"][i]
            progress.add(sum(step[3] for step in under_way[i]) if kind == "ok" else np.nan, kind)
            under_way[i] = []
        if len(batch) >= 4 * BATCH:
            x, actions, before, advantage = map(np.array, zip(*batch, strict=True))
            policy.improve(x, actions, before, advantage / (advantage.std() + 1e-6))
            progress.log()
            batch = []
    return policy

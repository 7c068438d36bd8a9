"""POSET-RL's network and learner, for poset_rl.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from policy import Policy
from train import adam, backward

FILE = Path(__file__).parent / "poset_rl.txt"
ACTIONS = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
SIZE, STEPS, HIDDEN = 300, 15, 128
# Steps of an update, and their rows; FRESH: steps until the target changes.
GRADIENTS, ROWS, DISCOUNT, FRESH = 60, 64, 0.99, 240
SCALE = 8.0  # of the length's logarithm


class Q(Policy):
    """The expected return of each action."""

    @classmethod
    def untrained(cls, seed: int = 0) -> Q:
        random, sizes = np.random.default_rng(seed), [SIZE + 1, HIDDEN, HIDDEN, len(ACTIONS)]
        pairs = itertools.pairwise(sizes)
        return cls((random.standard_normal(s) / np.sqrt(s[0]), np.zeros(s[1])) for s in pairs)

    @classmethod
    def read_onnx(cls, path: Path) -> Q:
        import onnx

        found = {
            each.name: onnx.numpy_helper.to_array(each)
            for each in onnx.load(path).graph.initializer
        }
        return cls((found[f"weights_{i}"], found[f"biases_{i}"]) for i in range(3))

    def inputs(self, observation: Any) -> np.ndarray:
        """float32[rows, 301]: the embedding's direction, and the logarithm of its length."""
        x = observation["ir2vec"]
        length = np.linalg.norm(x, axis=1, keepdims=True) + np.float32(1)
        return np.concatenate([x / length, np.log(length) / np.float32(SCALE)], axis=1)

    def input_nodes(self, node: Callable[..., str], constant: Callable[..., str]) -> Any:
        length = node(
            "Add", node("ReduceL2", "ir2vec", keepdims=1), constant("one", np.float32([1]))
        )
        logarithm = node("Div", node("Log", length), constant("scale", np.float32([SCALE])))
        x = node("Concat", node("Div", "ir2vec", length), logarithm, axis=0)
        return x, {"ir2vec": ("float32", [SIZE])}


def transitions(q: Q, episode: Any) -> tuple[np.ndarray, ...]:
    """x, action, reward, the next x, whether there is one: a row for each step."""
    x = q.inputs(episode.features)
    last = np.arange(len(x)) == len(x) - 1
    return x, episode.advice["advice"], last * episode.reward, np.roll(x, -1, axis=0), ~last


class Learner:
    """Double DQN (van Hasselt et al., 2016)."""

    def __init__(self, seed: int) -> None:
        self.q, self.random, self.steps = Q.untrained(seed), np.random.default_rng(seed), 0
        self.step = adam(self.q)
        self.memory: list[tuple[np.ndarray, ...]] = []  # `transitions` of episodes

    def learn(self) -> None:
        rows = [np.concatenate(column) for column in zip(*self.memory, strict=True)]
        for _ in range(GRADIENTS):
            if self.steps % FRESH == 0:
                self.target = Q(self.q.layers)
            self.steps += 1
            picks = self.random.integers(len(rows[1]), size=ROWS)
            x, action, gain, following, goes_on = (column[picks] for column in rows)
            every, best = np.arange(ROWS), self.q.outputs(following).argmax(axis=1)
            expected = gain + DISCOUNT * goes_on * self.target.outputs(following)[every, best]
            values = self.q.outputs(x)
            back = np.zeros_like(values)
            back[every, action] = np.clip(values[every, action] - expected, -1, 1) / ROWS
            self.step(backward(self.q, x, back))

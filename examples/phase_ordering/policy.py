"""The policy: a small network in numpy, also written as an ONNX model for opt's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from search import ACTIONS, STOP, shared, steps_of

SCALE = 8.0  # of the logarithms
INSTRUCTIONS = 15  # the place of that count in "counters": counters.h
COUNTERS = 99
HIDDEN = 64
NEVER = np.float32(-1e9)
PRIOR = 0.5  # how strongly an untrained policy prefers the order of -Oz: exp(0.5) times as likely as the action after it


class Policy:
    """Layers of weights float32[inputs, outputs] and biases float32[outputs], with tanh between."""

    def __init__(self, layers: Iterable[Iterable[Any]]) -> None:
        self.layers = [(np.array(w, np.float32), np.array(b, np.float32)) for w, b in layers]

    @classmethod
    def untrained(cls, seed: int = 0) -> Policy:
        """An untrained network that follows the order of -Oz."""
        random = np.random.default_rng(seed)
        inputs = 2 * COUNTERS + len(ACTIONS)
        hidden = random.standard_normal((inputs, HIDDEN)) / np.sqrt(inputs)
        places = np.arange(len(ACTIONS))
        places[STOP] = len(ACTIONS)
        last = np.zeros((HIDDEN, len(ACTIONS)))
        return cls([(hidden, np.zeros(HIDDEN)), (last, -PRIOR * places)])

    def inputs(self, observation: Mapping[str, Any]) -> np.ndarray:
        """float32[rows, inputs], the network's inputs for an observation."""
        counters = observation["counters"]
        relative = counters / (counters[:, INSTRUCTIONS : INSTRUCTIONS + 1] + 1)
        return np.concatenate([np.log(counters + 1) / SCALE, relative, observation["used"]], axis=1)

    def logits(self, observation: Mapping[str, Any]) -> np.ndarray:
        """float32[rows, actions], -1e9 for forbidden actions."""
        return np.where(
            observation["action_mask"] != 0, self.outputs(self.inputs(observation)), NEVER
        )

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """float32[rows, actions], of the network's inputs."""
        for i, (weights, biases) in enumerate(self.layers):
            x = (np.tanh(x) if i else x) @ weights + biases
        return x

    def likeliest(self, batch: Any) -> np.ndarray:
        """For `collect`: int64[rows], the likeliest actions."""
        return self.logits(batch).argmax(axis=1)

    def sampled(self, batch: Any, rows: np.ndarray) -> np.ndarray:
        """For `candidate_rewards`: candidate 0 takes the likeliest actions, each other one draws
        with its own random numbers."""
        noise = [
            np.random.default_rng((row, step)).gumbel(size=len(ACTIONS)) * (row > 0)
            for row, step in zip(rows, steps_of(batch), strict=True)
        ]
        return (self.logits(batch) + np.array(noise)).argmax(axis=1)

    def save_onnx(self, path: Path) -> None:
        """Writes the model: inputs as the plugin sends them, output float32[actions]."""
        nodes: list[Any] = []
        constants: dict[str, Any] = {}

        def constant(name: str, value: Any) -> str:
            constants[name] = value
            return name

        def node(kind: str, *inputs: str, **attributes: Any) -> str:
            nodes.append((kind, " ".join(inputs), f"x{len(nodes)}", attributes))
            return f"x{len(nodes) - 1}"

        x, features = self.input_nodes(node, constant)
        x = node("Reshape", x, constant("row", np.int64([1, -1])))
        for i, (weights, biases) in enumerate(self.layers):
            x = node("Tanh", x) if i else x
            x = node("Gemm", x, constant(f"weights_{i}", weights), constant(f"biases_{i}", biases))
        actions = [len(self.layers[-1][1])]
        x = node("Reshape", x, constant("actions", np.int64(actions)))
        allowed = node("Cast", "action_mask", to=shared.BOOL)
        nodes.append(("Where", f"{allowed} {x} {constant('never', NEVER.reshape(1))}", "scores"))
        inputs = {**features, "action_mask": ("int8", actions)}
        shared.save_onnx(path, nodes, inputs, {"scores": ("float32", actions)}, constants)

    def input_nodes(self, node: Callable[..., str], constant: Callable[..., str]) -> Any:
        """`inputs` as ONNX: the name of its result, and the features by name."""
        one = constant("one", np.float32([1]))
        logarithms = node(
            "Div", node("Log", node("Add", "counters", one)), constant("scale", np.float32([SCALE]))
        )
        instructions = node(
            "Gather", "counters", constant("instructions", np.int64([INSTRUCTIONS]))
        )
        relative = node("Div", "counters", node("Add", instructions, one))
        x = node("Concat", logarithms, relative, "used", axis=0)
        return x, {"counters": ("float32", [COUNTERS]), "used": ("float32", [len(ACTIONS)])}

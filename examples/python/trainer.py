"""Trains the agent of environment.cpp, environment.c or environment.py with Q-learning over shared
memory, and writes the result as an ONNX model for onnx:// (pip install gymnasium onnx).

python trainer.py shm://NAME MODEL.onnx [EPISODES]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import shmbridge
from shmbridge.envs import CompilerEnv

RATE, DISCOUNT = 0.5, 0.95


def train(env: CompilerEnv, episodes: int) -> Any:
    """The value of each action in each state, float32[8, 4]; a linear model of the observation."""
    random = np.random.default_rng(0)
    q = np.zeros((8, 4), np.float32)
    totals = []
    for episode in range(episodes):
        observation, _ = env.reset()
        over, total = False, 0.0
        while not over:
            state = observation["state"]
            explore = random.random() < max(0.2, 1 - episode / episodes)
            action = int(random.integers(4) if explore else np.argmax(state @ q))
            observation, reward, terminated, truncated, info = env.step(action)
            over, total = terminated or truncated, total + reward
            if "error" in info:
                break  # the compiler died: nothing to learn
            after = 0.0 if terminated else DISCOUNT * float(np.max(observation["state"] @ q))
            q += (
                RATE
                * np.outer(state, np.eye(4)[action]).astype(np.float32)
                * (reward + after - state @ q)
            )
        totals.append(total)
        if (episode + 1) % 200 == 0:
            print(f"{episode + 1} episodes: mean reward {np.mean(totals[-200:]):.2f}", flush=True)
    return q


def save(q: Any, path: str) -> None:
    """An ONNX model: float32[8] "state" in, float32[4] "worth" out."""
    from onnx import TensorProto, checker, helper, numpy_helper
    from onnx import save as write

    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, [8])
    worth = helper.make_tensor_value_info("worth", TensorProto.FLOAT, [4])
    node = helper.make_node("MatMul", ["state", "q"], ["worth"])
    graph = helper.make_graph([node], "policy", [state], [worth], [numpy_helper.from_array(q, "q")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model)
    write(model, path)


def main(url: str, path: str, episodes: str = "800") -> None:
    """Trains with every compiler that connects."""
    import onnx  # noqa: F401 # fails before the training, not after it

    env = CompilerEnv(url, actions=4)
    print(f"training at {env.compilers.host.url}", flush=True)
    try:
        q = train(env, int(episodes))
    finally:
        env.close()
    save(q, path)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (shmbridge.ShmbridgeError, ImportError, OSError, ValueError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)

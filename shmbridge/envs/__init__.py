"""Gymnasium's environments for trainers. The compiler's side is shmbridge.rl, or C or C++::

    env = CompilerEnv("shm://unroll", actions=5)
    observation, info = env.reset()  # waits for a compiler that begins an episode
    while not over:
        observation, reward, terminated, truncated, info = env.step(action)

Several compilers at once: `CompilerVectorEnv`. It needs Gymnasium: pip install 'shmbridge[gym]'.
"""

from __future__ import annotations

from shmbridge._episodes.pool import CompilerPool
from shmbridge.envs._compiler_env import CompilerEnv
from shmbridge.envs._vector_env import CompilerVectorEnv

__all__ = ["CompilerEnv", "CompilerVectorEnv", "CompilerPool"]

"""The cost of transport in a whole training: the same learner and episodes through shared memory,
named pipes and gRPC.

    python bench training [--workers 1,5] [--rounds N] [--json FILE]

The compiler is examples/cpp/environment.cpp, which does almost nothing: that leaves transport and
the learner, REINFORCE with a linear softmax policy, in numpy and in the trainer's one thread. Each
worker has its own address, so that equal seeds give equal episodes in every way, and the weights
can be compared. gRPC is reached through `shmbridge relay`, since C++ alone would start Python in
every compiler. Needs `pip install 'shmbridge[gym,grpc]'` and a C++ compiler.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from deploy import free_port
from program import ROOT, SHMBRIDGE, compiled, cpu_used, options, report, turns
from run import machine

from shmbridge.envs import CompilerEnv

WAYS = ("shm", "pipe", "grpc")
EPISODES, ACTIONS = 2000, 4  # of all workers; of the compiler


class Learner:
    """REINFORCE (Williams 1992) with a linear softmax policy and a running mean as its baseline."""

    def __init__(self, actions: int, workers: int) -> None:
        self.actions, self.random = actions, np.random.default_rng(0)
        self.weights: Any = None
        self.mean = 0.0
        self.steps: list[list[tuple[Any, Any]]] = [[] for _ in range(workers)]  # x, d log p / d Wx
        self.rewards: list[list[float]] = [[] for _ in range(workers)]
        self.totals: list[float] = []

    def act(self, worker: int, observation: dict[str, Any]) -> int:
        """Draws an action."""
        values = [np.log1p(np.abs(value.reshape(-1))) for value in observation.values()]
        x = np.concatenate(values, dtype=np.float64)
        if self.weights is None:
            self.weights = np.zeros((self.actions, len(x)))
        scores = self.weights @ x
        p = np.exp(scores - scores.max())
        p /= p.sum()
        action = int(self.random.choice(self.actions, p=p))
        p *= -1
        p[action] += 1
        self.steps[worker].append((x, p))
        return action

    def end(self, worker: int) -> None:
        """Learns from a worker's episode."""
        total = sum(self.rewards[worker])
        for x, gradient in self.steps[worker]:
            self.weights += 0.02 * (total - self.mean) * np.outer(gradient, x) / len(x)
        self.mean += 0.05 * (total - self.mean)
        self.totals.append(total)
        self.steps[worker].clear()
        self.rewards[worker].clear()


def train(envs: list[CompilerEnv], episodes: int, learner: Learner) -> tuple[float, float, int]:
    """This many episodes of each worker, in step.

    Returns:
        Seconds and the trainer's CPU since all compilers have asked, and the number of actions.
    """
    left, actions = [episodes] * len(envs), 0
    observations: list[Any] = [None] * len(envs)
    used, began = 0.0, 0.0
    with ThreadPoolExecutor(len(envs)) as pool:

        def reset(
            workers: list[int],
        ) -> None:  # together: each has a host, which receives meanwhile
            its = pool.map(lambda i: envs[i].reset()[0], workers)
            for i, observation in zip(workers, its, strict=True):
                observations[i] = observation

        reset(list(range(len(envs))))
        used, began = cpu_used(resource.RUSAGE_SELF), time.perf_counter()
        while running := [i for i, more in enumerate(left) if more]:
            for i in running:
                envs[i].send(learner.act(i, observations[i]))
            actions += len(running)
            over = []
            for i in running:
                observations[i], reward, terminated, truncated, info = envs[i].receive()
                if "error" in info:
                    raise RuntimeError(f"a compiler failed: {info['error']}")
                learner.rewards[i].append(reward)
                if terminated or truncated:
                    learner.end(i)
                    left[i] -= 1
                    over += [i] if left[i] else []
            reset(over)
        return time.perf_counter() - began, cpu_used(resource.RUSAGE_SELF) - used, actions


@contextmanager
def addresses(
    way: str, workers: int, folder: Path
) -> Iterator[tuple[list[CompilerEnv], list[str]]]:
    """The trainer's environments, and the URLs that their compilers open."""
    with ExitStack() as stack:
        envs, urls = [], []
        for i in range(workers):
            name = f"shm://training-{os.getpid()}-{i}"
            host = {
                "shm": name,
                "pipe": f"pipe://{folder}/{i}?serdes=flatbuffers",
                "grpc": f"grpc://127.0.0.1:{free_port()}",
            }[way]
            env = CompilerEnv(host, actions=None, timeout=60)
            envs.append(stack.enter_context(closing(env)))
            if way == "grpc":
                relay = [SHMBRIDGE, "relay", name, host]
                process = subprocess.Popen(relay, stdout=subprocess.DEVNULL)
                stack.callback(process.wait)
                stack.callback(process.terminate)
            urls.append(
                f"{host if way == 'pipe' else name}{'&' if '?' in host else '?'}connect_timeout=30"
            )
        yield envs, urls


def measure(way: str, workers: int, program: Path) -> dict[str, Any]:
    """One training and its weights."""
    episodes = EPISODES // workers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="training-")))
        envs, urls = stack.enter_context(addresses(way, workers, folder))
        learner = Learner(ACTIONS, workers)
        for url in urls:
            command = [str(program), url, str(episodes)]
            compiler = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            stack.callback(compiler.wait)
            stack.callback(compiler.kill)
        seconds, cpu, count = train(envs, episodes, learner)
    return {
        "seconds": seconds,
        "trainer_cpu": cpu,
        "actions": count,
        "first": float(np.mean(learner.totals[: EPISODES // 5])),
        "last": float(np.mean(learner.totals[-(EPISODES // 5) :])),
        "learnt": learner.weights.tobytes().hex()[-64:],
    }


def row(workers: int, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The JSON of all ways."""
    learnt = {each["learnt"] for rounds in found.values() for each in rounds}
    ways = []
    for way, rounds in found.items():
        cpu = median(each["trainer_cpu"] / each["actions"] for each in rounds) * 1e6
        seconds = [each["seconds"] for each in rounds]
        ways.append({"way": way, "seconds": seconds, "trainer_cpu_us": cpu})
    about = {key: found["shm"][0][key] for key in ("actions", "first", "last")}
    return {"workers": workers, "episodes": EPISODES, **about, "same": len(learnt) == 1, "ways": ways}  # fmt: skip


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--workers", default="1,5")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    results = []
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(ROOT / "examples/cpp/environment.cpp", Path(folder) / "environment")
        for workers in map(int, given.workers.split(",")):
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for i in range(given.rounds):
                for way in turns(WAYS, i):
                    found[way].append(measure(way, workers, program))
            results.append(row(workers, found))
    whole = {"machine": machine(), "rounds": given.rounds, "rows": results}
    report("training", whole, given.json)


if __name__ == "__main__":
    sys.exit(main())

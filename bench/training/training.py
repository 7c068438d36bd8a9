"""The cost of transport in a whole training: POSET-RL through shared memory, named pipes and gRPC, and
as its authors did at first, who started opt and llvm-ir2vec for each step.

    python bench training [--only NAME,...] [--json FILE]

Double DQN, that of examples/phase_ordering, chooses 15 actions of an episode from the module's IR2Vec
embedding. llc and llvm-mca compute the reward, which the time includes. It learns after each episode,
or after each five with five workers. Draws depend on the episode and the step alone, so that all URLs
have equal episodes, and the weights can be compared; `original` soon chooses other actions. gRPC is in
C++ in the compiler. Needs what `deploy phases` and `threads` need.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import shmbridge
from bench.compilers.cases import bitcode, poset_rl
from bench.compilers.plugins import EXAMPLES
from bench.compilers.ways import build_grpc_runner, free_port
from bench.pages.results_page import report
from bench.program import machine, options, turns
from bench.sources import fetch_source
from shmbridge.training import Module, Task

sys.path.append(str(EXAMPLES / "phase_ordering"))
import poset_rl as agent  # noqa: E402

WAYS = ("shm", "pipe", "grpc", "original")
# The source, workers, episodes, rounds, ways.
TRAININGS = {
    "ltable.c": ("lua", 1, 10, 2, WAYS),
    "5 workers": ("lua", 5, 10, 4, WAYS),
    "Lua": ("lua", 1, 3, 1, WAYS),
    "zstd": ("zstd", 1, 2, 1, WAYS),
    "SQLite": ("sqlite", 1, 2, 1, WAYS),
}
LIMIT = 600.0  # seconds of a compilation


class Training:
    """One training of a program by one way."""

    def __init__(self, way: str, module: Module, task: Task, baseline: Any) -> None:
        self.way, self.module, self.task, self.baseline = way, module, task, baseline
        self.learner = agent.Learner(0)

    def run(self, workers: int, episodes: int) -> list[float]:
        """The seconds until the end of each update."""
        seconds = list[float]()
        with ThreadPoolExecutor(workers) as pool, tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            for first in range(0, episodes, workers):
                epsilon = max(0.05, 1 - 1.5 * first / episodes)  # as in poset_rl.py
                files = [Path(folder) / str(first + i) for i in range(workers)]
                for episode in pool.map(self.episode, files, [epsilon] * workers):
                    self.learner.memory.append(agent.transitions(self.learner.q, episode))
                self.learner.learn()
                seconds.append(time.perf_counter() - began)
        return seconds

    def episode(self, to: Path, epsilon: float) -> Any:
        """The episode with the number to.name."""
        q, steps = self.learner.q, list[tuple[Any, int]]()

        def choose(observation: Any) -> int:
            """The best action, or a random one."""
            x = np.float32(observation["ir2vec"]).reshape(1, -1)
            action = int(q.outputs(q.inputs({"ir2vec": x})).argmax())
            random = np.random.default_rng((int(to.name), len(steps)))
            if random.random() < epsilon:
                action = int(random.integers(len(agent.ACTIONS)))
            steps.append((x[0], action))
            return action

        scores = self.compile(choose, to)
        if len(steps) != agent.STEPS:
            raise RuntimeError(f"{self.way}: expected {agent.STEPS} actions, found {len(steps)}")
        x, actions = map(np.array, zip(*steps, strict=True))
        gain = agent.reward(SimpleNamespace(scores=scores), self.baseline)
        return SimpleNamespace(features={"ir2vec": x}, advice={"advice": actions}, reward=gain)

    def compile(self, choose: Callable[[Any], int], to: Path) -> Any:
        """Its scores."""
        if self.way == "original":
            module = self.module.path
            agent.original(choose, module.with_name("ir2vec.json"), module, to)
            return {name: score(to) for name, score in self.task.scores.items()}
        url = {
            "shm": f"shm://training-{os.getpid()}-{to.name}",
            "pipe": f"pipe://{to}?serdes=flatbuffers",
            "grpc": f"grpc://127.0.0.1:{free_port()}",
        }[self.way]
        with shmbridge.Host(url) as host, host.start(choose):
            outcome = self.task.run(self.module, url)
        if not outcome.ok:
            raise RuntimeError(f"{self.way}: {outcome}")
        return outcome.scores


def exact(vocabulary: Path) -> None:
    """Makes the embeddings multiples of 0.01, because llvm-ir2vec prints two decimals: its vectors count
    1, 0.5 or 0.2 times."""
    parts = json.loads(vocabulary.read_text())
    for part in parts.values():
        part |= {name: (100 * np.array(x)).round(1).tolist() for name, x in part.items()}
    vocabulary.write_text(json.dumps(parts))


def tasks(folder: Path) -> dict[str, Task]:
    """How each way compiles; `original` only scores."""
    asking, _ = poset_rl(folder)
    exact(folder / "ir2vec.json")
    by_grpc = ["env", f"LD_PRELOAD={build_grpc_runner(folder)}", *asking]
    found = {way: agent.scored(by_grpc if way == "grpc" else asking) for way in WAYS}
    for task in found.values():
        task.seconds = LIMIT
        task.scores.pop("instructions", None)  # no part of the reward
    return found


def measure(name: str, folder: Path, task: dict[str, Task]) -> dict[str, Any]:
    """The JSON of a training by all ways."""
    program, workers, episodes, rounds, ways = TRAININGS[name]
    source = fetch_source(folder, program)
    source = source.with_name("ltable.c") if rounds > 1 else source
    module = Module(name, bitcode(source, folder / f"{name}.ll"))
    baseline, same = task["shm"].baseline(module), True
    seconds: dict[str, list[list[float]]] = {way: [] for way in ways}
    for i in range(rounds):
        learned = set()
        for way in turns(ways, i):
            training = Training(way, module, task[way], baseline)
            seconds[way].append(training.run(workers, episodes))
            if way != "original":
                learned.add(training.learner.q.layers[-1][0].tobytes())
            print(name, way, *(f"{each:.1f}" for each in seconds[way][-1]), flush=True)
        same &= len(learned) == 1
    return {"name": name, "episodes": episodes, "ways": seconds, "same": same}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", default=",".join(TRAININGS), help="of " + ",".join(TRAININGS))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    found: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as name:
        task = tasks(Path(name))
        found["rows"] = [measure(each, Path(name), task) for each in given.only.split(",")]
    report("training", found, given.json)


if __name__ == "__main__":
    main()

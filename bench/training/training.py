"""The cost of transport in a whole training: POSET-RL with the same learner and episodes through shared
memory, named pipes and gRPC, and as its authors did at first, who started opt and llvm-ir2vec for each
step.

    python bench training [--workers 1,5] [--rounds N] [--json FILE]

The compiler is opt with examples/phase_ordering, which compiles one file of Lua with 15 actions in each
episode. The learner is REINFORCE with a linear softmax policy, in numpy and in the trainer's one thread,
because the compiler's time counts here. Each worker has its own address, so that equal seeds give equal
episodes in every way, and the weights can be compared; those of `original` differ, since llvm-ir2vec
prints two decimals. gRPC is reached through `shmbridge relay`, since C++ alone would start Python in
every compiler. Needs `pip install 'shmbridge[gym,grpc]'`, and what `deploy phases` needs.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.compilers.cases import bitcode, poset_rl
from bench.compilers.plugins import EXAMPLES
from bench.compilers.ways import free_port
from bench.pages.results_page import report
from bench.program import SHMBRIDGE, machine, options, turns
from bench.sources import fetch_source
from shmbridge.envs import CompilerEnv
from shmbridge.training.scores import ir_instructions

WAYS = ("shm", "pipe", "grpc", "original")
EPISODES, ACTIONS, STEPS = 20, 34, 15  # of all workers; of the compiler
# An opt for each episode.
COMPILER = 'for i in $(seq $EPISODES); do "$@" || exit; done'


class Learner:
    """REINFORCE (Williams 1992) with a linear softmax policy and a running mean as its baseline."""

    def __init__(self, actions: int, workers: int) -> None:
        self.actions, self.random = actions, np.random.default_rng(0)
        self.weights: Any = None
        self.mean = 0.0
        self.steps: list[list[tuple[Any, Any]]] = [[] for _ in range(workers)]  # x, d log p / d Wx
        self.rewards: list[list[float]] = [[] for _ in range(workers)]

    def act(self, worker: int, observation: dict[str, Any]) -> int:
        """Draws an action."""
        x = np.arcsinh(observation["ir2vec"].astype(np.float64))
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
        self.steps[worker].clear()
        self.rewards[worker].clear()


class Original:
    """An environment that starts two processes for each step."""

    def __init__(self, module: Path, folder: Path, number: int) -> None:
        self.module, self.vocabulary = module, module.with_name("ir2vec.json")
        self.now, self.to = module, folder / f"{number}.ll"

    def observe(self) -> dict[str, Any]:
        words = ["llvm-ir2vec-22", "embeddings", f"--ir2vec-vocab-path={self.vocabulary}"]
        said = subprocess.check_output([*words, self.now, "-o", "-"], text=True)
        found = re.findall(r"\[(.*?)\]", said, re.DOTALL)
        return {"ir2vec": np.sum([np.array(each.split(), np.float32) for each in found], axis=0)}

    def reset(self) -> Any:
        self.now, self.steps, self.size = self.module, 0, ir_instructions(self.module)
        return self.observe(), {}

    def send(self, action: int) -> None:
        words = ["opt-22", f"-passes={actions()[action]}", self.now, "-S", "-o", self.to]
        self.running, self.now = subprocess.Popen(words), self.to

    def receive(self) -> Any:
        self.steps += 1
        if self.running.wait():
            return None, 0.0, True, False, {"error": "opt has failed"}
        before, self.size = self.size, ir_instructions(self.now)
        reward = float(np.log((before + 1) / (self.size + 1)))
        return self.observe(), reward, self.steps == STEPS, False, {}


def actions() -> list[str]:
    lines = (EXAMPLES / "phase_ordering/poset_rl.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def train(envs: Sequence[Any], episodes: int, learner: Learner) -> float:
    """This many episodes of each worker, in step: seconds since all compilers have asked."""
    left = [episodes] * len(envs)
    observations: list[Any] = [None] * len(envs)
    with ThreadPoolExecutor(len(envs)) as pool:

        def reset(workers: list[int]) -> None:
            # together: each has a host, which receives meanwhile
            its = pool.map(lambda i: envs[i].reset()[0], workers)
            for i, observation in zip(workers, its, strict=True):
                observations[i] = observation

        reset(list(range(len(envs))))
        began = time.perf_counter()
        while running := [i for i, more in enumerate(left) if more]:
            for i in running:
                envs[i].send(learner.act(i, observations[i]))
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
        return time.perf_counter() - began


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


def measure(way: str, workers: int, asking: list[str], module: Path) -> dict[str, Any]:
    """One training and its weights."""
    episodes = EPISODES // workers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="training-")))
        learner = Learner(ACTIONS, workers)
        if way == "original":
            envs, urls = [Original(module, folder, i) for i in range(workers)], list[str]()
        else:
            envs, urls = stack.enter_context(addresses(way, workers, folder))
        for url in urls:
            command = ["sh", "-c", COMPILER, "compiler", *asking, str(module), "-o", "/dev/null"]
            env = {**os.environ, "SHMBRIDGE_URL": url, "EPISODES": str(episodes)}
            compiler = subprocess.Popen(command, env=env, start_new_session=True)
            stack.callback(compiler.wait)
            stack.callback(os.killpg, compiler.pid, signal.SIGTERM)
        seconds = train(envs, episodes, learner)
    return {"seconds": seconds, "learnt": learner.weights.tobytes().hex()[-64:]}


def row(workers: int, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The JSON of all ways."""
    learnt = {
        each["learnt"] for way, rounds in found.items() for each in rounds if way != "original"
    }
    ways = []
    for way, rounds in found.items():
        ways.append({"way": way, "seconds": [each["seconds"] for each in rounds]})
    same = len(learnt) == 1
    return {"workers": workers, "episodes": EPISODES, "same": same, "ways": ways}


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--workers", default="1,5")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the started processes
    results = []
    with tempfile.TemporaryDirectory() as folder:
        asking, _ = poset_rl(Path(folder))
        module = bitcode(
            fetch_source(Path(folder), "lua").with_name("ltable.c"), Path(folder) / "ltable.ll"
        )
        for workers in map(int, given.workers.split(",")):
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for i in range(given.rounds):
                for way in turns(WAYS, i):
                    found[way].append(measure(way, workers, asking, module))
            results.append(row(workers, found))
    whole = {"machine": machine(), "rounds": given.rounds, "rows": results}
    report("training", whole, given.json)


if __name__ == "__main__":
    sys.exit(main())

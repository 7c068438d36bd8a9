"""Steps of environments, compared with the vectors of Gymnasium and Stable-Baselines3: python
bench steps [--only ROWS] [--json FILE].

See bench/README.md."""

import contextlib
import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from bench.builds import compiled
from bench.program import cpu_used, endless_loops, machine, options, write
from shmbridge.envs import CompilerEnv, CompilerVectorEnv

HERE = Path(__file__).parent
LENGTH = 1000  # steps of an episode
SIZES = (1, 2, 4, 8)
CONTENDERS = ("single", "vector", "sync", "async", "subproc")


class Walk(gymnasium.Env[Any, Any]):
    """steps_environment.c in Python."""

    observation_space = spaces.Box(-np.inf, np.inf, (300,), np.float32)
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return np.arange(300, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return np.arange(300, dtype=np.float32), float(action), self.at == LENGTH, False, {}


Step = Callable[[], Any]


@contextlib.contextmanager
def compilers(program: Path, n: int) -> Iterator[str]:
    name = f"steps-{os.getpid()}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        url = f"shm://{name}?connect_timeout=20"
        started += [subprocess.Popen([str(program), url, str(LENGTH)]) for _ in range(n)]
        yield name
    finally:
        for each in started:
            each.kill()
            each.wait()


@contextlib.contextmanager
def contender(kind: str, n: int, program: Path) -> Iterator[Step]:
    """A function that steps all n environments."""
    actions = np.ones(n, np.int64)
    with contextlib.ExitStack() as stack:
        env: Any
        if kind == "single":
            name = stack.enter_context(compilers(program, 1))
            env = stack.enter_context(contextlib.closing(CompilerEnv(name, actions=5, timeout=20)))

            def step() -> None:
                _, _, terminated, truncated, _ = env.step(1)
                if terminated or truncated:
                    env.reset()

            env.reset()
            yield step
            return
        if kind == "vector":
            name = stack.enter_context(compilers(program, n))
            env = CompilerVectorEnv(name, n, actions=5, timeout=20)
        elif kind == "subproc":
            from stable_baselines3.common.vec_env import SubprocVecEnv

            env = SubprocVecEnv([Walk] * n)
        else:
            env = {"sync": SyncVectorEnv, "async": AsyncVectorEnv}[kind]([Walk] * n)
        stack.enter_context(contextlib.closing(env))
        env.reset()
        yield lambda: env.step(actions)


def measure(kind: str, n: int, program: Path, seconds: float) -> dict[str, float]:
    """Steps a second of all environments, and microseconds of the trainer's CPU for each."""
    with contender(kind, n, program) as step:
        for _ in range(200):
            step()
        count = 0
        used = cpu_used(resource.RUSAGE_SELF)
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            for _ in range(50):
                step()
            count += 50 * n
        took = time.monotonic() - start
        cpu = cpu_used(resource.RUSAGE_SELF) - used
    return {"rate": count / took, "cpu": cpu / count * 1e6}


def main() -> None:
    """Alternates the contenders in rounds; medians."""
    parser = options(__doc__, rounds=3)
    parser.add_argument("--only", help="contenders, of " + ",".join(CONTENDERS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--loops", default="0,2", help="number of endless loops")
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    kinds = args.only.split(",") if args.only else CONTENDERS
    results = []
    with tempfile.TemporaryDirectory() as directory:
        program = compiled(HERE / "steps_environment.c", Path(directory, "steps_environment"))
        if "subproc" in kinds and importlib.util.find_spec("stable_baselines3") is None:
            print("subproc: left out: stable_baselines3 is not installed", flush=True)
            kinds = [kind for kind in kinds if kind != "subproc"]
        for loops in map(int, args.loops.split(",")):
            for n in map(int, args.sizes.split(",")):
                shown = [kind for kind in kinds if kind != "single" or n == 1]
                found: dict[str, list[dict[str, float]]] = {kind: [] for kind in shown}
                for _ in range(args.rounds):
                    for kind in shown:
                        with endless_loops(loops):
                            found[kind].append(measure(kind, n, program, args.seconds))
                for kind in shown:
                    rates, cpus = (
                        sorted(each[figure] for each in found[kind]) for figure in ("rate", "cpu")
                    )
                    rate, cpu = statistics.median(rates), statistics.median(cpus)
                    row = {"contender": kind, "n": n, "loops": loops, "rate": rate, "cpu": cpu}
                    results.append({**row, "rates": rates})
                    print(
                        f"loops {loops}  n {n}  {kind:8}  {rate:9.0f}/s ({rates[0]:.0f} to {rates[-1]:.0f})  {cpu:6.2f} us of CPU a step",
                        flush=True,
                    )
    about = machine(("gymnasium", "stable-baselines3"))
    write(args.json, {"machine": about, "rows": results})


if __name__ == "__main__":
    sys.exit(main())

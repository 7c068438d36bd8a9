"""Trains RLlib's PPO and APPO on ../four_passes, then on two machines, one of which is lost: see
README.md."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).absolute().parents[1] / "four_passes"))
os.environ["PYTHONPATH"] = sys.path[0]  # Ray's processes import it too
os.environ["OMP_NUM_THREADS"] = "1"  # the CPUs are for compilers and environment runners
os.environ.update(RAY_worker_niceness="0")  # Ray's default is 15, also for compilers

import gymnasium
import numpy as np
import ray
import torch
from environment import environment, prepare
from gymnasium.wrappers.vector import TransformObservation
from loop import observe
from optimum import optimum
from ray.cluster_utils import Cluster
from ray.rllib.algorithms import Algorithm, APPOConfig, PPOConfig
from ray.tune.registry import register_env

from shmbridge.training import Corpus

HERE = Path(__file__).absolute().parent
CONFIGS = {"PPO": PPOConfig, "APPO": APPOConfig}
COMPILATIONS = 3000  # of one training
ENVS = 4  # compilers of one environment runner
BATCH = 96  # steps; PPO's settings are Stable-Baselines3's in four_passes
PATIENCE = 30  # iterations for a machine to be lost and to come back
COLUMNS = ["algorithm", "seed", "compilations", "seconds", "reward", "seen", "held out", "random"]
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


def compilers(context: dict[str, Any]) -> Any:
    """Each environment runner calls this, so its compilers run on its machine and share its
    memory."""
    env = environment(context["programs"], context["num_envs"], timeout=60)
    empty = {name: np.zeros(space.shape) for name, space in env.observation_space.items()}
    space = gymnasium.spaces.Box(-np.inf, np.inf, observe(empty).shape[1:], np.float32)
    return TransformObservation(env, observe, single_observation_space=space)


def algorithm(name: str, programs: Corpus, seed: int, runners: int) -> Algorithm:
    """RLlib's algorithm. runners: processes that step compilers; 0: this one does."""
    register_env("four-passes", compilers)
    config = CONFIGS[name]().environment("four-passes", env_config={"programs": programs})
    config.env_runners(
        num_env_runners=runners,
        num_envs_per_env_runner=ENVS,
        gym_env_vectorize_mode="vector_entry_point",
        rollout_fragment_length=BATCH // ENVS // max(1, runners),
    )
    config.training(train_batch_size_per_learner=BATCH, lr=3e-3, entropy_coeff=0.02, gamma=1.0)
    if name == "PPO":
        config.training(minibatch_size=BATCH, num_epochs=8, lambda_=0.95, kl_coeff=0.0)
        config.training(clip_param=0.2, grad_clip=0.5, vf_loss_coeff=0.5)
    config.rl_module(model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh"})
    config.reporting(min_time_s_per_iteration=0, metrics_num_episodes_for_smoothing=100)
    config.debugging(seed=seed, log_level="ERROR")
    return config.build_algo()


def train(algo: Algorithm, compilations: int) -> Iterator[tuple[int, float]]:
    """Trains, and yields after each iteration the number of compilations and the mean reward of the
    last hundred."""
    done = 0
    while done < compilations:
        told = algo.train()["env_runners"]
        done = int(told.get("num_episodes_lifetime", 0))
        yield done, float(told.get("episode_return_mean", np.nan))


def rewards(algo: Algorithm, programs: Corpus) -> dict[str, float]:
    """The reward of an episode of each program with the policy's most likely passes."""
    module, found = algo.get_module(), {}
    (learnt,) = algo.learner_group.get_weights().values()
    module.set_state(learnt)  # APPO sends weights only to remote environment runners
    env = environment(programs, 1, seed=1)
    for program in programs:
        observations, _ = env.reset(options={"module": program.name})
        found[program.name], over = 0.0, False
        while not over:
            with torch.no_grad():
                out = module.forward_inference({"obs": torch.from_numpy(observe(observations))})
            actions = out["action_dist_inputs"].argmax(dim=1).numpy()
            observations, reward, terminations, truncations, _ = env.step(actions)
            found[program.name] += float(reward[0])
            over = terminations[0] or truncations[0]
    env.close()
    return found


def mean_part(reached: dict[str, float], graphs: dict[str, Any]) -> float:
    """The mean part of the greatest decrease; a reward is the logarithm of how many times fewer
    instructions, and one, there are."""
    found = []
    for name, reward in reached.items():
        graph = graphs[name]
        found.append(graph.part((graph.counts[0] + 1) / np.exp(reward) - 1))
    return statistics.mean(found)


def learn(name: str, seed: int, compilations: int, corpora: list[Corpus], graphs: Any) -> Any:
    """One training: the policy's results on training and held-out programs, and random search's."""
    started, path = time.monotonic(), HERE / "results" / f"{name}-{seed}.csv"
    algo = algorithm(name, corpora[0], seed, runners=1)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["seconds", "episodes", "reward"])
        for done, reward in train(algo, compilations):
            rows.writerow([round(time.monotonic() - started, 1), done, reward])
    found = {"algorithm": name, "seed": seed, "compilations": done, "reward": reward}
    if graphs:
        seen, held_out = (rewards(algo, programs) for programs in corpora)
        random, each = np.random.default_rng(seed), done // len(seen)
        searched = [graphs[program].part(graphs[program].random(random, each)) for program in seen]
        found["seen"], found["held out"] = mean_part(seen, graphs), mean_part(held_out, graphs)
        found["random"] = statistics.mean(searched)
    algo.stop()
    found["seconds"] = round(time.monotonic() - started)
    told = (found.get(column, "-") for column in COLUMNS)
    print(
        *(f"{each:.3f}" if isinstance(each, float) else each for each in told), sep="\t", flush=True
    )
    return found


def left_of(runner: int) -> str:
    """The running compilers that an environment runner's process started, and its bridges in
    /dev/shm."""
    name, asking = f"four-passes-{runner}-", 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            asking += f"SHMBRIDGE_URL=shm://{name}".encode() in (process / "environ").read_bytes()
    bridges = len(list(Path("/dev/shm").glob(f"shmb.{name}*")))
    return f"{asking} compilers, {bridges} bridges"


def machines(programs: Corpus, iterations: int) -> list[dict[str, Any]]:
    """PPO on two machines, one of which is lost during an iteration and comes back."""
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    second = cluster.add_node(**NODE)
    ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)
    algo = algorithm("PPO", programs, 1, runners=2)  # one CPU each, so one on each machine
    group, table = algo.env_runner_group, []
    places = group.foreach_env_runner(
        lambda runner: (ray.get_runtime_context().get_node_id(), os.getpid()),
        local_env_runner=False,
    )
    here = ray.get_runtime_context().get_node_id()
    (lost,) = (pid for node, pid in places if node != here)

    def lose() -> None:
        time.sleep(0.3)  # during an iteration
        cluster.remove_node(second, allow_graceful=False)
        os.kill(lost, signal.SIGKILL)  # like a machine that is switched off

    losing = threading.Thread(target=lose)
    print("\niteration  environment runners  compilations  reward")
    for iteration, (done, reward) in enumerate(train(algo, sys.maxsize), 1):
        runners = group.num_healthy_remote_workers()
        table.append({"runners": runners, "compilations": done, "reward": reward})
        print(f"{iteration:9} {runners:20} {done:13} {reward:7.3f}", flush=True)
        if iteration == iterations:
            losing.start()
        elif iteration == 2 * iterations:
            losing.join()
            print(
                f"the second machine is lost; left of it: {left_of(lost)}",
                flush=True,
            )
            cluster.add_node(**NODE)
        elif iteration >= 3 * iterations and runners == 2 or iteration == PATIENCE:
            break
    pids = group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
    algo.stop()
    ray.shutdown()
    cluster.shutdown()
    print("remaining at the end:", "; ".join(map(left_of, pids)))
    return table


def main() -> None:
    """See README.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="only PPO, briefly")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CONFIGS), help="algorithms, separated by commas")
    arguments = parser.parse_args()
    names, seeds = arguments.only.split(","), range(1, arguments.seeds + 1)
    if arguments.quick:
        names, seeds = ["PPO"], range(1, 2)
    (HERE / "results").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="rllib-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        os.environ["RAY_TMPDIR"] = folder  # its sockets need a short path
        show(arguments.quick, names, seeds)


def show(quick: bool, names: list[str], seeds: range) -> None:
    """Everything, printed and in results/."""
    corpora = prepare()
    graphs = {}  # in quick form: it takes minutes
    if not quick:
        graphs = {name: graph for corpus in corpora for name, graph in optimum(corpus).items()}
    print("\t".join(COLUMNS))
    room = {**NODE, "num_cpus": 4}  # APPO has two aggregators and its environment runner
    ray.init("local", logging_level="ERROR", log_to_driver=False, include_dashboard=False, **room)
    compilations = 100 if quick else COMPILATIONS
    results = {
        "trainings": [
            learn(name, seed, compilations, corpora, graphs) for name in names for seed in seeds
        ]
    }
    ray.shutdown()
    results["machines"] = machines(corpora[0], 1 if quick else 3)
    (HERE / "results" / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

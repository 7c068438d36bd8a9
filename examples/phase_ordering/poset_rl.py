"""POSET-RL's experiment (Jain et al., ISPASS 2022): python poset_rl.py [--quick]. README.md has the plan
and the results.

Double DQN chooses 15 of 34 sub-sequences of -Oz from the module's IR2Vec embedding, which the plug-in
computes inside opt after each step. Size and llvm-mca's cycles are the reward.

python poset_rl.py original MODEL.onnx VOCABULARY MODULE.bc OUT.bc compiles as the first POSET-RL did: it
starts opt and llvm-ir2vec for each step.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import programs
from ddqn import ACTIONS, FILE, STEPS, Learner, Q, transitions
from deploy import deploy
from run import HERE, kept, text_of
from search import PLUGIN, build, command, scored, scores_of, shared, steps_of

from shmbridge.training import Corpus, Task, collect

VOCABULARY = HERE / "build" / "ir2vec.json"
WEIGHTS = {"text": 10.0, "mca": 5.0}  # of the reward, as in the paper
SEEDS, UPDATES, EPISODES = 2, 15, 12  # of a training; compilations before each update


# ---- Training ----


def task(vocabulary: Path = VOCABULARY) -> Task:
    return scored(asking(vocabulary, "print;"))


def asking(vocabulary: Path, more: str = "", plugin: Path = PLUGIN) -> list[str]:
    """opt with the plug-in."""
    options, flag = f"{more}repeat;ir2vec", f"-ir2vec-vocab-path={vocabulary}"
    return command(FILE, STEPS, flag, options=options, plugin=plugin)


def reward(outcome: Any, baseline: Any) -> float:
    """Of a whole compilation, as the steps' rewards only add up to it."""
    gains = {name: 1 - outcome.scores[name] / max(baseline[name], 1) for name in WEIGHTS}
    return float(sum(WEIGHTS[name] * gain for name, gain in gains.items()))


def exploring(q: Q, epsilon: float, *key: int) -> Callable[[Any], np.ndarray]:
    """The best action, or a random one with the probability epsilon; draws depend on the
    compilation's number and step alone."""

    def choose(batch: Any) -> np.ndarray:
        advice = q.likeliest(batch)
        for row, (label, step) in enumerate(zip(batch.labels, steps_of(batch), strict=True)):
            random = np.random.default_rng((*key, int(label.rpartition("@")[2]), step))
            if random.random() < epsilon:
                advice[row] = random.integers(len(ACTIONS))
        return advice

    return choose


def train(modules: Corpus, to: Task, seed: int, updates: int, episodes: int) -> tuple[Q, Any]:
    learner, began = Learner(seed), time.monotonic()
    sampler, curve = modules.sampler(seed), []
    for update in range(updates):
        policy = exploring(learner.q, max(0.05, 1 - 1.5 * update / updates), seed, update)
        compiled = collect(policy, to, itertools.islice(sampler, episodes), reward=reward)
        made = sorted(
            (e for e in compiled if np.isfinite(e.reward)), key=lambda e: (e.module.name, e.reward)
        )
        learner.memory += [transitions(learner.q, episode) for episode in made]
        learner.learn()
        curve.append(
            {
                "reward": float(np.mean([e.reward for e in made])),
                "seconds": time.monotonic() - began,
            }
        )
    return learner.q, curve


def learnt(corpora: dict[str, Corpus], seed: int, updates: int, episodes: int) -> dict[str, Any]:
    q, curve = train(corpora["train"], task(), seed, updates, episodes)
    rows = {
        f"DDQN, {use}": scores_of(q.likeliest, task(), corpus)
        for use, corpus in corpora.items()
        if use != "train"
    }
    rows["random, test"] = scores_of(exploring(q, 1.0, seed), task(), corpora["test"])
    return {
        "layers": [[array.tolist() for array in layer] for layer in q.layers],
        "rows": rows,
        "curve": curve,
    }


# ---- The original way ----


def original(choose: Callable[[Any], int], vocabulary: Path, module: Path, to: Path) -> list[int]:
    """Starts llvm-ir2vec and opt for each step. The actions, chosen by the observation."""
    actions, opt = list[int](), ["opt-22", "-preserve-bc-uselistorder", "-o", to]
    subprocess.run([*opt, "-passes=always-inline", module], check=True)  # as the plug-in begins
    words = ["llvm-ir2vec-22", "embeddings", f"--ir2vec-vocab-path={vocabulary}", "-o", "-"]
    for _ in range(STEPS):
        found = re.findall(r"\[(.*?)\]", shared.said(*words, to), re.DOTALL)
        functions = [np.array(each.split(), np.float32) for each in found]
        actions.append(choose({"ir2vec": np.sum(functions, axis=0)[None]}))
        subprocess.run([*opt, f"-passes={ACTIONS[actions[-1]]}", to], check=True)
    return actions


def main() -> None:
    quick = "--quick" in sys.argv
    results, work = HERE / "results" / ("quick" * quick), HERE / "build"
    results.mkdir(parents=True, exist_ok=True)
    build()
    vocabulary = HERE.parent / "vocabulary.py"
    shared.said(
        sys.executable,
        vocabulary,
        "ir",
        VOCABULARY,
        *sorted((HERE.parent / "regalloc/kernels").glob("*.c")),
    )
    real = work / "real"  # without csmith's, whose gains are unlike those of real programs
    corpora = (
        programs.small(work / "small") if quick else programs.corpora(real, programs.REAL_ONLY)
    )
    seeds, updates, episodes = (1, 2, 4) if quick else (SEEDS, UPDATES, EPISODES)
    table: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        done = kept(results, learnt, corpora, seed, updates, episodes)
        print(f"seed {seed} has trained for {done['curve'][-1]['seconds']:.0f} s", flush=True)
        for name, means in done["rows"].items():
            table.setdefault(name, []).append(means)
        if seed == 0:
            q = Q(done["layers"])
    print("-Oz divided by ours, geometric means over modules, mean of seeds (least to greatest):")
    for name, row in table.items():
        print(f"{name:20} {text_of(row)}")
    model = results / "poset_rl.onnx"
    q.save_onnx(model)
    print(
        f"in this process, by onnx:// and by aot:// the same: {deploy(q.likeliest, model, task(), corpora['test'])}"
    )


if __name__ == "__main__":
    if "original" in sys.argv:
        model, *paths = map(Path, sys.argv[2:])
        q = Q.read_onnx(model)
        print(*original(lambda x: int(q.outputs(q.inputs(x)).argmax()), *paths))
    else:
        main()

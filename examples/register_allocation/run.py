"""Learns to allocate registers: eviction and priority of an unmodified clang-22, two agents with
one reward.

python run.py            # all of it: 1400 compilations
python run.py --quick    # a smoke test in a few seconds
"""

import argparse
import json
import re
import time
from itertools import product
from pathlib import Path

import numpy as np
from policy import AGENTS, SIZE, START, advise

from shmbridge.training import Corpus, Task, candidate_rewards

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SIGMA = 0.3


def cost(output):
    """Spills and reloads from LLVM's remarks, folded ones too, each multiplied by LLVM's estimate
    of how often its block runs."""
    remarks = output.with_name("remarks.yaml").read_text().split("--- ")
    whole = [text for text in remarks if re.search(r"^Name: +SpillReloadCopies$", text, re.M)]
    found = re.findall(r"Total(?:Folded)?(?:Spills|Reloads)Cost: +'(.*?)'", "".join(whole))
    return sum(map(float, found))


def count(output):
    """Instructions that spill or reload, as clang comments them in the assembly."""
    return len(re.findall(r"-byte (?:Folded )?(?:Spill|Reload)", output.read_text()))


def task_of(decisions):
    remarks = "-fsave-optimization-record -foptimization-record-file={folder}/remarks.yaml"
    return Task(
        f"clang-22 -O2 -S {{module}} -o {{output}} {remarks} -foptimization-record-passes=regalloc",
        llvm=decisions,
        scores={"cost": cost, "count": count},
    )


# ---- Two ways to search, with the same number of compilations ----


class Search:
    """Keeps the best weights so far, starting with START. A failed compilation counts -1."""

    def __init__(self, task, modules):
        self.task, self.modules = task, modules
        self.best, self.reward, self.curve, self.failed = START, -np.inf, [], 0
        self.try_all(START[None])

    def try_all(self, weights):
        """float64[candidates]: the mean reward of each over the modules."""
        rewards = candidate_rewards(
            lambda batch, rows: advise(batch, weights[rows]), len(weights), self.task, self.modules
        )
        self.failed += int(np.isnan(rewards).sum())
        means = np.nan_to_num(rewards, nan=-1.0).mean(axis=1)
        for candidate, reward in zip(weights, means, strict=True):
            if reward > self.reward:
                self.best, self.reward = candidate, reward
            self.curve.append(float(self.reward))
        return means


def random_search(search, generations, candidates, seed):
    random = np.random.default_rng(seed)
    for _ in range(generations):
        noise = random.standard_normal((candidates, SIZE))
        search.try_all(START + SIGMA * noise)


def evolution(search, generations, candidates, seed):
    """OpenAI's evolution strategy with mirrored noise and rewards by rank; the length of a step is
    sigma."""
    random, center = np.random.default_rng(seed), START
    for _ in range(generations):
        noise = random.standard_normal((candidates // 2, SIZE))
        noise = np.concatenate([noise, -noise])
        means = search.try_all(center + SIGMA * noise)
        ranks = means.argsort().argsort() / (len(means) - 1) - 0.5
        center = center + SIGMA * (ranks @ noise) / np.linalg.norm(ranks)


SEARCHES = {"random search": random_search, "evolution": evolution}


# ---- Results ----


def compiled(task, modules, weights):
    """The scores of each module, by its name, compiled with these weights."""
    scores = {}

    def keep(outcome, _baseline):
        scores[outcome.module] = dict(outcome.scores)
        return 0.0

    candidate_rewards(
        lambda batch, rows: advise(batch, weights[None][rows]), 1, task, modules, reward=keep
    )
    assert len(scores) == len(modules), "a compilation failed with weights that served before"
    return scores


def better(scores, greedy, modules):
    """The part of greedy's cost that they save, mean of the modules."""
    names = [module.name for module in modules]
    return float(np.mean([1 - scores[name]["cost"] / greedy[name]["cost"] for name in names]))


def spread(savings):
    """The change of the cost: median, least and greatest."""
    values = [-saving for saving in savings]
    return f"{np.median(values):+7.1%} ({min(values):+.1%} to {max(values):+.1%})"


def run(quick):
    seeds, generations, candidates = (range(1), 1, 4) if quick else (range(3), 4, 8)
    train, test = Corpus.from_sources(*sorted((HERE / "kernels").glob("*.c"))).split(0.55)
    if quick:
        train, test = train[:2], test[:2]
    print("trained on:", *(module.path.stem for module in train))
    print("held out:  ", *(module.path.stem for module in test), flush=True)
    task, alone = task_of("evict,priority"), {agent: task_of(agent) for agent in AGENTS}
    greedy = {module.name: task.baseline(module) for module in [*train, *test]}

    def judge(weights):
        """Each module's scores and savings, also with only one of the agents."""
        scores = compiled(task, [*train, *test], weights)
        row = {"scores": scores, "weights": weights.tolist()}
        row["train"] = better(scores, greedy, train)
        row["test"] = better(scores, greedy, test)
        for agent, only in alone.items():
            row[f"test, {agent} alone"] = better(compiled(only, test, weights), greedy, test)
        return row

    RESULTS.mkdir(exist_ok=True)
    rows = [{"search": "none", **judge(START)}]
    for seed, (name, search_with) in product(seeds, SEARCHES.items()):
        since = time.time()
        search = Search(task, train)
        search_with(search, generations, candidates, seed)
        row = {"search": name, "seed": seed, "curve": search.curve, "failed": search.failed}
        rows.append(row | judge(search.best) | {"seconds": time.time() - since})
        (RESULTS / "results.json").write_text(
            json.dumps({"greedy": greedy, "rows": rows}, indent=1)
        )
        print(
            f"{name}, seed {seed}: {len(search.curve) * len(train)} compilations in "
            f"{rows[-1]['seconds']:.0f} s, {search.failed} failed; cost compared with greedy "
            f"{-rows[-1]['train']:+.1%} on training kernels, {-rows[-1]['test']:+.1%} held out",
            flush=True,
        )

    print(
        "\nCost of spills and reloads compared with greedy (median and range of the seeds; "
        "negative: better)"
    )
    columns = ["train", "test", *(f"test, {agent} alone" for agent in AGENTS)]
    print(f"{'search':16}" + "".join(f"{column:>28}" for column in columns))
    for name in ("none", *SEARCHES):
        found = [row for row in rows if row["search"] == name]
        texts = (spread([row[column] for row in found]) for column in columns)
        print(f"{name:16}" + "".join(f"{text:>28}" for text in texts))

    chosen = max((r for r in rows if r["search"] == "evolution"), key=lambda r: r["train"])
    (RESULTS / "weights.json").write_text(json.dumps(chosen["weights"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    run(parser.parse_args().quick)

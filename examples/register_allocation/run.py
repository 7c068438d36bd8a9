"""Learns to allocate registers: eviction and priority of an unmodified clang-22, two agents with one reward.

python run.py            # all of it, about half an hour on two cores
python run.py --quick    # a few seconds, which show that it works and no more
"""

import argparse
import json
import re
import secrets
import sys
import time
from pathlib import Path

import numpy as np
from policy import AGENTS, SIZE, START, advise

from shmbridge import Host
from shmbridge.corpus import Corpus
from shmbridge.task import Task
from shmbridge.trajectories import evaluate

HERE = Path(__file__).parent
RESULTS = HERE / "results"
KINDS = {"evict,priority": ["evict", "priority"], "evict": ["evict"]}  # what the agents decide
SIGMA = 0.3


def cost(output):
    """Spills and reloads, folded ones too, each times how often LLVM believes that its block runs: from LLVM's remarks."""
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
    """Keeps the best weights that were tried, START first. A candidate that a compilation fails with gets -1 there."""

    def __init__(self, task, modules, decisions):
        self.task, self.modules = task, modules
        self.free = np.zeros(SIZE, bool)  # the weights of the agents that decide
        for agent in KINDS[decisions]:
            self.free[AGENTS[agent]] = True
        self.best, self.reward, self.curve, self.failed = START, -np.inf, [], 0
        self.try_all(START[None])

    def try_all(self, weights):
        """float64[candidates]: the mean reward of each over the modules."""
        rewards = evaluate(
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
        noise = random.standard_normal((candidates, SIZE)) * search.free
        search.try_all(START + SIGMA * noise)


def evolution(search, generations, candidates, seed):
    """OpenAI's evolution strategy with mirrored noise and rewards by rank; its step is as long as sigma."""
    random, center = np.random.default_rng(seed), START
    for _ in range(generations):
        noise = random.standard_normal((candidates // 2, SIZE)) * search.free
        noise = np.concatenate([noise, -noise])
        means = search.try_all(center + SIGMA * noise)
        ranks = means.argsort().argsort() / (len(means) - 1) - 0.5
        center = center + SIGMA * (ranks @ noise) / np.linalg.norm(ranks)


SEARCHES = {"random search": random_search, "evolution": evolution}


# ---- What came out ----


def compiled(task, modules, weights):
    """The scores of each module, compiled by the learnt policy."""
    with (
        Host(f"allocator-{secrets.token_hex(4)}") as host,
        host.start(lambda batch: advise(batch, np.tile(weights, (len(batch), 1))), max_batch=8),
    ):
        outcomes = [task.run(module, host.url) for module in modules]
    assert all(outcome.ok and not outcome.defaulted for outcome in outcomes), outcomes
    return [dict(outcome.scores) for outcome in outcomes]


def better(scores, baselines, name):
    """By which part the scores are less than greedy's, in the mean of the modules."""
    return float(np.mean([1 - s[name] / b[name] for s, b in zip(scores, baselines, strict=True)]))


def spread(values):
    return f"{np.median(values):+7.1%} ({min(values):+.1%} to {max(values):+.1%})"


def picture(rows, kinds):
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(9, 3.4), sharey=True, squeeze=False)
    for axis, decisions in zip(axes[0], kinds, strict=True):
        for color, name in zip(("tab:gray", "tab:blue"), SEARCHES, strict=True):
            for i, row in enumerate(
                r for r in rows if (r["agents"], r["search"]) == (decisions, name)
            ):
                axis.plot(row["curve"], color=color, alpha=0.8, label=None if i else name)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(title=f"decides: {decisions}", xlabel="candidates tried")
    axes[0, 0].set_ylabel("best so far, against greedy\n(training kernels)")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "learning.png", dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    quick = parser.parse_args().quick
    seeds, generations, candidates = (range(1), 1, 4) if quick else (range(3), 6, 8)
    kinds = [*KINDS][:1] if quick else [*KINDS]
    begin = time.time()

    corpus = Corpus.from_sources(*sorted((HERE / "kernels").glob("*.c")))
    train, test = corpus.split(0.4)
    if quick:
        train, test = train[:2], test[:2]
    print("trained on:", *(module.path.stem for module in train))
    print("held out:  ", *(module.path.stem for module in test), flush=True)

    rows = []
    for decisions in kinds:
        task = task_of(decisions)
        greedy = {side: [task.baseline(m) for m in side] for side in (train, test)}

        def judge(weights, task=task, greedy=greedy):
            row = {}
            for name, side in (("train", train), ("test", test)):
                scores = compiled(task, side, weights)
                row[name] = {m.path.stem: s for m, s in zip(side, scores, strict=True)}
                row |= {f"{name} {s}": better(scores, greedy[side], s) for s in task.scores}
            return row

        rows.append({"agents": decisions, "search": "none", **judge(START)})
        for name, search_with in SEARCHES.items():
            for seed in seeds:
                search, since = Search(task, train, decisions), time.time()
                search_with(search, generations, candidates, seed)
                row = {"agents": decisions, "search": name, "seed": seed, **judge(search.best)}
                row |= {"curve": search.curve, "failed": search.failed}
                row |= {"weights": search.best.tolist(), "seconds": time.time() - since}
                rows.append(row)
                print(
                    f"{decisions}, {name}, seed {seed}: {len(search.curve) * len(train)} compilations "
                    f"in {row['seconds']:.0f} s, {search.failed} failed; cost {row['test cost']:+.1%} "
                    "on held-out kernels",
                    flush=True,
                )

    print("\nHow much less spills and reloads cost than greedy's (median and range of the seeds)")
    print(f"{'who decides':16}{'search':16}{'training kernels':>28}{'held-out kernels':>28}")
    for decisions in kinds:
        for name in ("none", *SEARCHES):
            found = [r for r in rows if (r["agents"], r["search"]) == (decisions, name)]
            sides = (spread([r[f"{side} cost"] for r in found]) for side in ("train", "test"))
            print(f"{decisions:16}{name:16}" + "".join(f"{text:>28}" for text in sides))

    chosen = max((r for r in rows if r["search"] == "evolution"), key=lambda r: r["curve"][-1])
    print(
        f"\nHeld-out kernels, by the weights that are best on the training kernels ({chosen['agents']})"
    )
    print(
        f"{'kernel':12}{'cost, greedy':>14}{'learnt':>10}{'instructions, greedy':>24}{'learnt':>8}"
    )
    for module in test:
        stem, was = module.path.stem, task.baseline(module)
        now = chosen["test"][stem]
        print(
            f"{stem:12}{was['cost']:14.0f}{now['cost']:10.0f}{was['count']:24.0f}{now['count']:8.0f}"
        )

    RESULTS.mkdir(exist_ok=True)
    seconds = round(time.time() - begin)
    results = {"rows": rows, "seconds": seconds, "python": sys.version}
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    (RESULTS / "weights.json").write_text(json.dumps(chosen["weights"]))
    picture(rows, kinds)
    print(f"\n{seconds} s; results/results.json has all of it, results/weights.json these weights")


if __name__ == "__main__":
    main()

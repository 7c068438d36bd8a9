"""Teaches an unmodified clang -Oz where to inline, for smaller C++ objects: python run.py [--quick]
[--seeds N]"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sysconfig
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import programs
from policy import Array, Policy, imitate, llvm_rule, save

from shmbridge.training import (
    Corpus,
    Episode,
    Module,
    Task,
    candidate_rewards,
    collect,
    evaluate,
)
from shmbridge.training.scores import text_size

HERE = Path(__file__).parent
BUILD, RESULTS = HERE / "build", HERE / "results"
COMPILE = "clang-22 {flags} {module} -o {output}"  # bitcode, with its own flags
LINK = f"{programs.CLANG} -shared -fuse-ld=lld -Wl,--gc-sections {{module}} {{flags}} -o {{output}} -lstdc++"
LINKS = {"linked": LINK, "ThinLTO": f"{LINK} -flto=thin"}
QUESTIONS = (10, 400)  # that the compilation of a training or test file asks
VARIANTS = 6  # compilations of each training file
SHIFT, NOISE = (-1, 3), 0.15  # of a variant's threshold, as a logarithm, and of its weights
LEAST = 5  # bytes: how much the imitation of a file counts if nothing was better than LLVM
SAMPLES = 10_000  # of the bootstrap

START = time.perf_counter()


def log(text: str) -> None:
    print(f"[{time.perf_counter() - START:5.0f} s] {text}", flush=True)


def kept(name: str, make: Callable[[], Any]) -> Any:
    """A result, from results/NAME if an earlier run has stored it."""
    path = RESULTS / name
    if path.exists():
        return pickle.loads(path.read_bytes())
    began = time.perf_counter()
    found, new = make(), path.with_suffix(".new")
    new.write_bytes(pickle.dumps(found))
    new.replace(path)  # at once: a kill leaves no half file
    log(f"{name}: {time.perf_counter() - began:.0f} s")
    return found


def task(command: str, **options: Any) -> Task:
    """The limit of time is generous, for a busy machine."""
    return Task(command, llvm="inline", scores={"size": text_size}, seconds=1800, **options)


def bytes_saved(outcome: Any, baseline: Any) -> float:
    return float(baseline["size"] - outcome.scores["size"])


def advice_of(episode: Episode) -> Array:
    return next(iter(episode.advice.values())).reshape(-1)


# ---- Learning ----


def ask_llvm(modules: Sequence[Module]) -> list[Episode]:
    """LLVM's own decisions, in the modules that ask a suitable number of questions."""
    teacher = task(COMPILE, include_default=True)
    asked = []
    for episode in collect(lambda batch: batch["inlining_default"], teacher, modules):
        if not episode.outcome.ok or episode.reward:
            raise SystemExit(f"expected the same as without advice, found {episode!r}")
        if QUESTIONS[0] <= len(episode) <= QUESTIONS[1]:
            asked.append(episode)
    return sorted(asked, key=lambda episode: episode.module.name)


def variants(rule: Policy, count: int, seed: int) -> Array:
    """Weights around LLVM's rule, with other thresholds: float64[count, inputs]."""
    random = np.random.default_rng(seed)
    weights = rule.weights + NOISE * random.standard_normal((count, len(rule.weights)))
    weights[:, 0] += random.uniform(*SHIFT, count)
    return weights


def explore(rule: Policy, modules: Sequence[Module], seed: int) -> list[Episode]:
    """Compiles each module with as many variants of LLVM's rule, all different."""
    jobs = [module for module in modules for _ in range(VARIANTS)]
    weights = variants(rule, len(jobs), seed)

    def decide(batch: Any) -> Array:
        rows = [int(label.rpartition("@")[2]) for label in batch.labels]  # which compilation
        return rule.decide(batch, weights[rows])

    found = collect(decide, task(COMPILE), jobs, reward=bytes_saved)
    return [episode for episode in found if episode.outcome.ok and len(episode)]


def learn(rule: Policy, taught: Sequence[Episode], explored: Sequence[Episode]) -> Policy:
    """BC-Max: imitates the best compilation of each module, by the bytes that it saves."""
    best = {episode.module: episode for episode in taught}
    for episode in explored:
        if episode.reward > best[episode.module].reward:
            best[episode.module] = episode
    inputs = np.concatenate([rule.inputs(each.features) for each in best.values()])
    decisions = np.concatenate([advice_of(each) for each in best.values()])
    importance = [np.full(len(e), (e.reward + LEAST) / len(e)) for e in best.values()]
    return replace(rule, weights=imitate(inputs, decisions, np.concatenate(importance)))


def search(rule: Policy, modules: Sequence[Module], seed: int) -> Policy:
    """Random search with as many compilations: the best of the variants for all modules."""
    weights = variants(rule, VARIANTS, 1000 + seed)

    def decide(batch: Any, rows: Array) -> Array:
        return rule.decide(batch, weights[rows])

    saved = candidate_rewards(decide, VARIANTS, task(COMPILE), modules, reward=bytes_saved)
    best = int(np.argmax(np.nan_to_num(saved).sum(1)))
    better = np.nan_to_num(saved[best]).sum() > 0
    return replace(rule, weights=weights[best]) if better else rule


# ---- Measurements ----


def measure(command: str, policy: Policy, modules: Sequence[Module]) -> dict[str, Any]:
    """The bytes of `.text` without the policy and with it, by module."""
    measuring = task(command)
    saved = evaluate(policy.decide, measuring, modules, reward=bytes_saved)
    if failed := [name for name, each in saved.items() if np.isnan(each)]:
        raise SystemExit(f"expected objects, found none of {', '.join(failed)}")
    plain = {module.name: measuring.baseline(module)["size"] for module in modules}
    return {name: (plain[name], plain[name] - each) for name, each in saved.items()}


def change(found: Mapping[str, Any]) -> float:
    """The relative change of the sum."""
    plain, policy = np.array([*found.values()]).sum(0)
    return float(policy / plain - 1)


def interval(found: Sequence[Mapping[str, Any]]) -> list[float]:
    """95 % of the mean change over the policies, by a bootstrap over the modules."""
    sizes = np.array([[*each.values()] for each in found])  # [policies, modules, 2]
    picks = np.random.default_rng(0).integers(sizes.shape[1], size=(SAMPLES, sizes.shape[1]))
    sums = sizes[:, picks].sum(2)
    changes = (sums[..., 1] / sums[..., 0] - 1).mean(0)
    return [float(bound) for bound in np.percentile(changes, (2.5, 97.5))]


def deploy(policy: Policy, modules: Sequence[Module]) -> bool:
    """Does clang with the policy as machine code write the same objects as with its Python?"""
    from shmbridge import Host

    model, library = RESULTS / "policy.onnx", RESULTS / "policy.so"
    save(policy, model)
    shmbridge = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
    subprocess.run([shmbridge, "compile", model, "-o", library], check=True, stdout=subprocess.PIPE)
    contents: dict[str, Any] = {"crc": lambda path: zlib.crc32(path.read_bytes())}
    asking = Task(COMPILE, llvm="inline", scores=contents, seconds=1800)
    with Host(f"inline-for-size-{os.getpid()}") as host, host.start(policy.decide, max_batch=2):
        for module in modules:
            outcomes = [asking.run(module, url) for url in (host.url, f"aot://{library}")]
            if failed := [each for each in outcomes if not each.ok or each.defaulted]:
                raise SystemExit(f"{failed[0].command}: {failed[0].kind}\n{failed[0].stderr}")
            if outcomes[0].scores != outcomes[1].scores:
                return False
    return True


def report(results: dict[str, Any]) -> None:
    for measured, of in results["changes"].items():
        for way, values in of.items():
            low, high = results["intervals"][measured][way]
            each = ", ".join(f"{value:+.2%}" for value in values)
            print(f"{measured:12}{way:8}{np.mean(values):+.2%} ({low:+.2%} to {high:+.2%}): {each}")
    print(f"Compilations to learn, each seed: {results['compilations']}")
    print(f"The same objects by aot://: {results['identical']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny programs, in about ten seconds")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if not shutil.which("clang-22"):
        raise SystemExit("expected clang-22, found none: apt-get install clang-22")
    global QUESTIONS, RESULTS
    seeds = 1 if options.quick else options.seeds
    if options.quick:
        QUESTIONS, RESULTS = (1, 10**6), RESULTS / "quick"
    BUILD.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True, parents=True)
    get = partial(programs.tiny, HERE / "tiny") if options.quick else programs.z3
    parts: dict[str, Corpus] = get(BUILD)

    taught = kept("taught", lambda: ask_llvm(parts["train"]))
    names = [name for name, values in taught[0].features.items() if values.dtype == np.int64]
    rule = llvm_rule({n: np.concatenate([e.features[n] for e in taught]) for n in names})
    different = sum((rule.decide(e.features) != advice_of(e)).sum() for e in taught)
    train = [episode.module for episode in taught]
    log(f"{len(train)} training files; the rule differs from LLVM in {different} decisions")

    learned, minutes = [], []
    for seed in range(seeds):
        explored = kept(f"explored-{seed}", partial(explore, rule, train, seed))
        policies = {"learned": learn(rule, taught, explored)}
        if seed == 0:
            policies["random"] = kept(f"random-{seed}", partial(search, rule, train, seed))
        learned.append(policies)
        minutes.append(sum(e.outcome.cpu for e in [*taught, *explored]) / 60)

    asked = kept("asked", lambda: [e.module.name for e in ask_llvm(parts["test"])])
    tests = {"objects": Corpus(parts["test"][name] for name in asked)}
    commands = {"objects": COMPILE}
    if not options.quick:
        tests |= dict.fromkeys(LINKS, programs.held_out(BUILD))
        commands |= LINKS
    measured: dict[str, dict[str, list[Any]]] = {}
    for how, modules in tests.items():
        for seed, policies in enumerate(learned):
            for way, policy in policies.items():
                making = partial(measure, commands[how], policy, modules)
                found = kept(f"{how}-{way}-{seed}", making)
                measured.setdefault(how, {}).setdefault(way, []).append(found)
    identical = deploy(learned[0]["learned"], tests["objects"][:10])
    results = {
        "train": len(train),
        "test": len(asked),
        "compilations": VARIANTS * len(train),
        "minutes": minutes,  # of CPU, to learn
        "different": int(different),
        "identical": identical,
        "changes": {h: {w: [*map(change, f)] for w, f in of.items()} for h, of in measured.items()},
        "intervals": {h: {w: interval(f) for w, f in of.items()} for h, of in measured.items()},
        "programs": {h: measured[h] for h in LINKS if h in measured},
    }
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    report(results)


if __name__ == "__main__":
    main()

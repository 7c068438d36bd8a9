"""Teaches an unmodified clang -Oz where to inline, for smaller programs: python run.py [--quick]
[--seeds N]"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sysconfig
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import programs
from policy import Array, Policy, imitate, save

from shmbridge.training import Corpus, Episode, Module, Task, candidate_rewards, collect
from shmbridge.training.scores import text_size

HERE = Path(__file__).parent
BUILD, RESULTS = HERE / "build", HERE / "results"
COMPILE = "clang-22 -Oz -fPIC -c {module} -o {output}"
LINK = "clang-22 -Oz -fPIC -shared {module} {flags} -o {output}"  # all files of a program
THRESHOLDS = [-15.0, 5.0, 15.0]  # of LLVM's cost estimate
RULES = {"never": -np.inf, "always": np.inf}
MOST = 20  # candidates for each compilation of the budget: most candidates need none
SIGMA = 0.3  # of the first perturbations; the inputs of the last layer are about as large as 1


START = time.perf_counter()


def log(text: str) -> None:
    print(f"[{time.perf_counter() - START:5.0f} s] {text}", flush=True)


def task(command: str, **options: Any) -> Task:
    """The limits are generous, for a busy machine."""
    return Task(command, scores={"size": text_size}, seconds=1800, **options)


Decide = Callable[[Any], Array]  # from features by name, or a batch, to a decision for each row


# ---- Input of evolution and random search ----


class Training:
    """Measures how many bytes policies save on the training files.

    A compiler's next question depends only on the answers before it. If a policy makes the
    decisions of a known compilation, that compilation is not repeated.

    Attributes:
        compilations: How many there were.
    """

    def __init__(self, taught: list[Episode]) -> None:
        self.compilations = 0
        self._known = {episode.module: [episode] for episode in taught}
        self._task = task(COMPILE, llvm="inline")

    def saved(self, decide: Decide) -> float:
        """The bytes; -inf where a compilation failed."""
        total, unknown = 0.0, []
        for module, episodes in self._known.items():
            same = [e for e in episodes if (decide(e.features) == advice_of(e)).all()]
            total += same[0].reward if same else 0
            unknown += [] if same else [module]
        self.compilations += len(unknown)
        compiled = collect(decide, self._task, unknown, reward=bytes_saved) if unknown else ()
        for episode in compiled:
            if episode.outcome.ok:
                self._known[episode.module].append(episode)
            total += episode.reward
        return -np.inf if np.isnan(total) else total


def advice_of(episode: Episode) -> Array:
    return next(iter(episode.advice.values())).reshape(-1)


def bytes_saved(outcome: Any, baseline: Any) -> float:
    return float(baseline["size"] - outcome.scores["size"])


def below(threshold: float | Array, features: Any) -> Array:
    return (features["cost_estimate"][:, 0] < threshold) * 1


def evolve(policy: Policy, training: Training, seed: int, budget: int) -> tuple[Array, float]:
    """A (1+2) evolution strategy from the policy that imitates LLVM: the best last layer, and the
    bytes it saves.

    The two children are on opposite sides of their parent. The step shrinks if both are worse, and
    grows otherwise.
    """
    random, best = np.random.default_rng(seed), policy.last
    most, sigma = 0.0, SIGMA
    for generation in range(MOST * budget // 2):  # of two candidates
        if training.compilations >= budget:
            break
        noise = sigma * random.standard_normal(len(best))
        children = [best + noise, best - noise]
        saved = [training.saved(partial(policy.decide, last=child)) for child in children]
        sigma *= 1.5 if max(saved) >= most else 0.7
        if max(saved) > most:
            best, most = children[int(np.argmax(saved))], max(saved)
        log(
            f"seed {seed}, generation {generation}, {training.compilations} compilations: {saved} "
            f"bytes; the best saves {most:.0f}"
        )
    return best, most


def search(policy: Policy, training: Training, seed: int, budget: int) -> tuple[Array, float]:
    """Random search around the same policy, at distances from 1/8 to 2 SIGMA, with as many
    compilations."""
    random, best, most = np.random.default_rng(1000 + seed), policy.last, 0.0
    for _ in range(MOST * budget):
        if training.compilations >= budget:
            break
        scale = SIGMA * 2 ** random.uniform(-3, 1)
        found = policy.last + scale * random.standard_normal(len(best))
        saved = training.saved(partial(policy.decide, last=found))
        if saved > most:
            best, most = found, saved
    log(f"seed {seed}, random search: the best saves {most:.0f} bytes")
    return best, most


# ---- The steps ----


def teach(train: Corpus, least: int, most: int) -> tuple[Policy, list[Episode]]:
    """A policy that imitates LLVM, and the compilations that ask `least` to `most` questions."""
    asked = []
    teacher = task(COMPILE, llvm="inline", include_default=True)
    for episode in collect(lambda batch: batch["inlining_default"], teacher, train):
        if not episode.outcome.ok or episode.reward:
            raise SystemExit(f"expected the same as without advice, found {episode!r}")
        if len(episode):
            asked.append(episode)
    asked.sort(key=lambda episode: episode.module.name)  # they ended in any order
    columns = joined(asked)
    decisions = columns.pop("inlining_default")[:, 0]
    policy = imitate(columns, decisions, seed=0)
    right = (policy.decide(columns) == decisions).mean()
    log(
        f"LLVM has decided {len(decisions)} times; the policy decides {right:.2%} the same, "
        f"a majority guess {max(decisions.mean(), 1 - decisions.mean()):.2%}"
    )
    return policy, [episode for episode in asked if least <= len(episode) <= most]


def joined(episodes: list[Episode]) -> dict[str, Array]:
    """The features of all questions, by name: int64[questions, 1]."""
    names = [name for name, values in episodes[0].features.items() if values.dtype == np.int64]
    return {name: np.concatenate([e.features[name] for e in episodes]) for name in names}


def measure(
    policy: Policy, layers: dict[str, Array], thresholds: dict[str, float], module: Module
) -> dict[str, float]:
    """The bytes of a held-out program, compiled and linked with each policy and rule, and
    without."""
    linking, cuts = task(LINK, llvm="inline"), np.array([*thresholds.values()])
    weights = np.array([*layers.values()])

    def decide(batch: Any, rows: Array) -> Array:
        rule = rows < len(cuts)
        advice = below(cuts[np.where(rule, rows, 0)], batch)
        layer = weights[np.where(rule, 0, rows - len(cuts))]
        return np.where(rule, advice, policy.decide(batch, layer))

    names = [*thresholds, *layers]
    saved = candidate_rewards(decide, len(names), linking, [module], reward=bytes_saved)[:, 0]
    plain = linking.baseline(module)["size"]
    log(f"{module.name}: {plain:.0f} bytes with -Oz")
    return {"-Oz": plain, **dict(zip(names, (plain - saved).tolist(), strict=True))}


def deploy(policy: Policy, held_out: Corpus) -> dict[str, Any]:
    """Deploys the policy at three URLs. The linked programs must be identical."""
    from shmbridge import Host

    model, library = RESULTS / "evolution-0.onnx", BUILD / "policy.so"
    shmbridge = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
    subprocess.run([shmbridge, "compile", model, "-o", library], check=True, stdout=subprocess.PIPE)
    plugin = f"-fpass-plugin={build_plugin(shmbridge)}"
    bytes_of: dict[str, Any] = {"crc": lambda path: zlib.crc32(path.read_bytes())}
    asking = Task(f"clang-22 {plugin} {LINK.partition(' ')[2]}", scores=bytes_of, seconds=1800)
    same = {}
    with Host(f"inline-for-size-{os.getpid()}") as host, host.start(policy.decide, max_batch=2):
        for module in held_out:
            urls = [host.url, f"onnx://{model}", f"aot://{library}"]
            outcomes = [asking.run(module, url) for url in urls]
            if failed := [outcome for outcome in outcomes if not outcome.ok]:
                raise SystemExit(f"{failed[0].command}: {failed[0].kind}\n{failed[0].stderr}")
            same[module.name] = len({outcome.scores["crc"] for outcome in outcomes}) == 1
            said = "the same bytes" if same[module.name] else "DIFFERENT bytes"
            log(f"{module.name} by shm://, onnx:// and aot://: {said}")
    return same


def build_plugin(shmbridge: str) -> Path:
    """The pass plug-in of examples/llvm/inliner, which asks $SHMBRIDGE_URL."""

    def output(*command: str) -> str:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    source = Path(output(shmbridge, "config", "--examples"), "llvm", "inliner")
    llvm = output("llvm-config-22", "--cmakedir")
    packages = [
        f"-DLLVM_DIR={llvm}",
        f"-Dshmbridge_DIR={output(shmbridge, 'config', '--cmakedir')}",
    ]
    output("cmake", "-S", str(source), "-B", str(BUILD / "plugin"), *packages)
    output("cmake", "--build", str(BUILD / "plugin"))
    return BUILD / "plugin" / "shmbridge-inliner.so"


# ---- Results ----


def report(results: dict[str, Any]) -> None:
    sizes, names = results["sizes"], results["columns"]
    print(f"\n{'':18}{'-Oz, bytes':>11}" + "".join(f"{name:>12}" for name in names))
    total = {n: sum(s[n] for s in sizes.values()) for n in next(iter(sizes.values()))}
    for program, found in {**sizes, "all": total}.items():
        cells = "".join(cell(found, group) for group in names.values())
        print(f"{program:18}{found['-Oz']:11.0f}{cells}")
    print(
        f"\n% compared with -Oz, negative: smaller; several seeds: mean ± half the range. "
        f"{results['seconds']:.0f} s."
    )
    print(f"Bytes saved on the training files: {results['bytes saved in training']}")
    print(f"Compilations: {results['compilations']}")


def cell(found: dict[str, float], group: list[str]) -> str:
    change = [100 * (found[name] / found["-Oz"] - 1) for name in group]
    spread = f" ±{(max(change) - min(change)) / 2:.2f}" if len(group) > 1 else ""
    return f"{np.mean(change):+.2f}{spread}".rjust(12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny programs, in about ten seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=80, help="compilations of a training")
    options = parser.parse_args()
    if not shutil.which("clang-22"):
        raise SystemExit("expected clang-22, found none: apt-get install clang-22")
    seeds, budget = (1, 6) if options.quick else (options.seeds, options.budget)
    BUILD.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    train, held_out = programs.ours(HERE / "tiny") if options.quick else programs.real(BUILD)
    log(f"{len(train)} files to train on, {len(held_out)} programs held out")

    policy, taught = teach(train, *((1, 10**6) if options.quick else (20, 250)))
    log(f"{len(taught)} files ask enough")
    training, cuts = Training(taught), THRESHOLDS[1:2] if options.quick else THRESHOLDS
    saved = [training.saved(partial(below, cut)) for cut in cuts]
    rules = {**RULES, "threshold": cuts[int(np.argmax(saved))]}
    log(f"the best threshold is {rules['threshold']:.0f}, which saves {max(saved):.0f} bytes")

    layers, trained, compilations = {"imitation": policy.last}, {}, {}
    for seed in range(seeds):
        for group, learn in {"evolution": evolve, "random": search}.items():
            name, training = f"{group} {seed}", Training(taught)
            layers[name], trained[name] = learn(policy, training, seed, budget)
            compilations[name] = training.compilations
            save(replace(policy, last=layers[name]), RESULTS / f"{group}-{seed}.onnx")
    results: dict[str, Any] = {
        "columns": {
            **{name: [name] for name in (*rules, "imitation")},
            **{g: [f"{g} {seed}" for seed in range(seeds)] for g in ("random", "evolution")},
        },
        "bytes saved in training": trained,
        "compilations": compilations,
        "threshold": rules["threshold"],
        "cpus": len(os.sched_getaffinity(0)),
        "sizes": {},
    }
    if not options.quick:
        best = replace(policy, last=layers["evolution 0"])
        results["same bytes by every URL"] = deploy(best, held_out[:2])  # one in C, one in C++
    for module in held_out:
        results["sizes"][module.name] = measure(policy, layers, rules, module)
        results["seconds"] = time.perf_counter() - START
        (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    report(results)


if __name__ == "__main__":
    main()

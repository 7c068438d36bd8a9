"""Teaches an unmodified clang -Oz where to inline, for smaller programs: python run.py [--quick] [--seeds N]"""

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import programs
from policy import Array, Policy, imitate, save

from shmbridge.corpus import Corpus
from shmbridge.scores import text_size
from shmbridge.task import Task
from shmbridge.trajectories import collect, evaluate

HERE = Path(__file__).parent
BUILD, RESULTS = HERE / "build", HERE / "results"
COMPILE = "clang-22 -Oz -fPIC -c {module} -o {output}"
LINK = "clang-22 -Oz -fPIC -shared {module} {flags} -o {output}"  # all files of a program
DEFAULT = "-mllvm -inliner-interactive-include-default"  # LLVM 22 also tells what it would do
THRESHOLDS = [-15.0, 5.0, 15.0]  # of LLVM's cost estimate
RULES = {"never": -np.inf, "always": np.inf}
SIGMA = 0.3  # of the first perturbations; the inputs of the last layer are about as large as 1


START = time.perf_counter()


def log(text: str) -> None:
    print(f"[{time.perf_counter() - START:5.0f} s] {text}", flush=True)


def task(command: str, **options: Any) -> Task:
    """Limits are wide: the machine may be busy."""
    return Task(command, scores={"size": text_size}, seconds=1800, **options)


# ---- What evolution and random search see ----


class Training:
    """Bytes that candidates save on the files to train on, and how many compilations that took."""

    def __init__(self, policy: Policy, files: Corpus) -> None:
        self.policy, self.files, self.compilations = policy, files, 0
        self._task = task(COMPILE, llvm="inline")

    def saved(self, weights: Array) -> Array:
        """weights: a last layer for each candidate. Returns the bytes, [candidates]; -inf where a compilation failed."""
        return self._saved(lambda b, rows: self.policy.decide(b, weights[rows]), len(weights))

    def saved_by(self, thresholds: Array) -> Array:
        """The same of rules: inline what LLVM estimates to cost less than the threshold."""
        return self._saved(partial(below, thresholds), len(thresholds))

    def _saved(self, decide: Callable[[Any, Array], Array], candidates: int) -> Array:
        self.compilations += candidates * len(self.files)
        rewards = evaluate(decide, candidates, self._task, self.files, reward=bytes_saved)
        return np.nan_to_num(rewards.sum(axis=1), nan=-np.inf)


def bytes_saved(outcome: Any, baseline: Any) -> float:
    return float(baseline["size"] - outcome.scores["size"])


def below(thresholds: Array, batch: Any, rows: Array) -> Array:
    return (batch["cost_estimate"][:, 0] < thresholds[rows]) * 1


def evolve(training: Training, seed: int, generations: int) -> tuple[Array, float]:
    """A (1+2) evolution strategy from the policy that imitates LLVM: the best last layer, and the bytes it saves.

    The two children lie on opposite sides of their parent. The step grows where one of them is better, and shrinks where none is.
    """
    random, best = np.random.default_rng(seed), training.policy.last
    most, sigma = 0.0, SIGMA
    for generation in range(generations):
        noise = sigma * random.standard_normal(len(best))
        children = np.array([best + noise, best - noise])
        saved = training.saved(children)
        better = saved.max() > most
        if better:
            best, most = children[saved.argmax()], float(saved.max())
        log(f"seed {seed}, generation {generation}: {saved} bytes; the best saves {most:.0f}")
        sigma *= 1.5 if better else 0.7
    return best, most


def search(training: Training, seed: int, candidates: int) -> tuple[Array, float]:
    """Random search: as many candidates around the same policy, their distances from 1/4 to 2 SIGMA."""
    random, start = np.random.default_rng(1000 + seed), training.policy.last
    scale = SIGMA * 2 ** random.uniform(-2, 1, (candidates, 1))
    found = start + scale * random.standard_normal((candidates, len(start)))
    saved = training.saved(found)
    log(f"seed {seed}, random search: the best saves {saved.max():.0f} bytes")
    if saved.max() <= 0:
        return start, 0.0
    return found[saved.argmax()], float(saved.max())


# ---- The steps ----


def teach(train: Corpus, least: int, most: int) -> tuple[Policy, Corpus]:
    """A policy that imitates LLVM, and the files whose compilation asks `least` to `most` questions."""
    asked, kept = [], []
    teacher = task(f"clang-22 {DEFAULT} {COMPILE.partition(' ')[2]}", llvm="inline")
    for episode in collect(lambda batch: batch["inlining_default"], teacher, train):
        if not episode.outcome.ok or episode.reward:
            raise SystemExit(f"expected the same as without advice, found {episode!r}")
        if len(episode):
            asked.append(episode)
        if least <= len(episode) <= most:
            kept.append(episode.module)
    columns = {
        name: np.concatenate([episode.features[name] for episode in asked])
        for name, values in asked[0].features.items()
        if values.dtype == np.int64
    }
    decisions = columns.pop("inlining_default")[:, 0]
    policy = imitate(columns, decisions, seed=0)
    right = (policy.decide(columns) == decisions).mean()
    log(
        f"LLVM has decided {len(decisions)} times; the policy decides {right:.2%} the same, "
        f"a majority guess {max(decisions.mean(), 1 - decisions.mean()):.2%}"
    )
    return policy, Corpus(sorted(kept, key=lambda module: module.name))


def measure(
    policy: Policy, layers: dict[str, Array], thresholds: dict[str, float], held_out: Corpus
) -> dict[str, Any]:
    """The bytes of each held-out program, compiled and linked with each policy and rule, and without."""
    linking, cuts = task(LINK, llvm="inline"), np.array([*thresholds.values()])
    weights = np.array([*layers.values()])

    def decide(batch: Any, rows: Array) -> Array:
        rule = rows < len(cuts)
        advice = below(cuts, batch, np.where(rule, rows, 0))
        layer = weights[np.where(rule, 0, rows - len(cuts))]
        return np.where(rule, advice, policy.decide(batch, layer))

    names = [*thresholds, *layers]
    rewards = evaluate(decide, len(names), linking, held_out, reward=bytes_saved)
    sizes = {}
    for column, module in enumerate(held_out):
        plain = linking.baseline(module)["size"]
        found = plain - rewards[:, column]
        sizes[module.name] = {"-Oz": plain, **dict(zip(names, found.tolist(), strict=True))}
        log(f"{module.name}: {plain:.0f} bytes with -Oz")
    return sizes


def deploy(policy: Policy, held_out: Corpus) -> dict[str, Any]:
    """The policy as a file, in the compiler's own process: the linked program must be the same to the byte, wherever the URL leads."""
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


# ---- What came out ----


def report(results: dict[str, Any]) -> None:
    sizes, names = results["sizes"], results["columns"]
    print(f"\n{'':18}{'-Oz, bytes':>11}" + "".join(f"{name:>12}" for name in names))
    total = {n: sum(s[n] for s in sizes.values()) for n in next(iter(sizes.values()))}
    for program, found in {**sizes, "all": total}.items():
        cells = "".join(cell(found, group) for group in names.values())
        print(f"{program:18}{found['-Oz']:11.0f}{cells}")
    seconds, compilations = results["seconds"], results["compilations"]
    print(f"\n% smaller than -Oz; several seeds: mean, and half the range. {seconds:.0f} s.")
    print(f"Compilations of each evolution and each search: {compilations}.")


def cell(found: dict[str, float], group: list[str]) -> str:
    smaller = [100 * (1 - found[name] / found["-Oz"]) for name in group]
    spread = f" ±{(max(smaller) - min(smaller)) / 2:.2f}" if len(group) > 1 else ""
    return f"{np.mean(smaller):+.2f}{spread}".rjust(12)


def picture(results: dict[str, Any]) -> None:
    """Per cent saved by each group on each program, the seeds as dots."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sizes = results["sizes"]
    groups = {n: g for n, g in results["columns"].items() if n not in RULES}
    figure, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(groups)
    for number, (name, group) in enumerate(groups.items()):
        at = np.arange(len(sizes)) + (number + 0.5) * width - 0.4
        smaller = np.array(
            [[100 * (1 - found[n] / found["-Oz"]) for n in group] for found in sizes.values()]
        )
        axes.bar(at, smaller.mean(1), width, label=name)
        axes.plot(np.repeat(at, len(group)), smaller.reshape(-1), ".k", markersize=4)
    axes.set_xticks(range(len(sizes)), list(sizes))
    axes.set_ylabel("% smaller than clang-22 -Oz, linked")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.legend()
    figure.savefig(RESULTS / "sizes.png", dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny programs, in about ten seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=8)
    options = parser.parse_args()
    if not shutil.which("clang-22"):
        raise SystemExit("expected clang-22, found none: apt-get install clang-22")
    seeds, generations = (1, 3) if options.quick else (options.seeds, options.generations)
    BUILD.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    train, held_out = programs.ours(HERE / "tiny") if options.quick else programs.real(BUILD)
    log(f"{len(train)} files to train on, {len(held_out)} programs held out")

    policy, files = teach(train, *((1, 10**6) if options.quick else (20, 400)))
    log(f"{len(files)} files ask enough")
    training = Training(policy, files)
    cuts = np.array([THRESHOLDS[1:2], THRESHOLDS][not options.quick])
    saved = training.saved_by(cuts)
    rules = {**RULES, "threshold": float(cuts[saved.argmax()])}
    log(f"the best threshold is {rules['threshold']:.0f}, which saves {saved.max():.0f} bytes")

    layers, trained = {"imitation": policy.last}, {"threshold": float(saved.max())}
    training.compilations = 0
    for seed in range(seeds):
        name, other = f"random {seed}", f"evolution {seed}"
        layers[other], trained[other] = evolve(training, seed, generations)
        layers[name], trained[name] = search(training, seed, 2 * generations)
    results = {
        "columns": {
            **{name: [name] for name in (*rules, "imitation")},
            **{g: [f"{g} {seed}" for seed in range(seeds)] for g in ("random", "evolution")},
        },
        "sizes": measure(policy, layers, rules, held_out),
        "bytes saved in training": trained,
        "compilations": training.compilations // (2 * seeds),
        "threshold": rules["threshold"],
        "cpus": len(os.sched_getaffinity(0)),
    }
    for seed in range(seeds):
        policy.last = layers[f"evolution {seed}"]
        save(policy, RESULTS / f"evolution-{seed}.onnx")
    if not options.quick:
        policy.last = layers["evolution 0"]
        results["same bytes by every URL"] = deploy(policy, held_out)
    results["seconds"] = time.perf_counter() - START
    report(results)
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    picture(results)


if __name__ == "__main__":
    main()

"""Edits an inlining heuristic between compilations, by hand and by a search, and prints the
results.

    python run.py [--quick] [--seeds N] [--candidates N]

README.md explains the comparison.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from source import FEATURES, changed, file_of, fresh, load

from shmbridge.training import Corpus, Module, Task, candidate_rewards
from shmbridge.training.scores import text_size

HERE = Path(__file__).parent
FLAGS = ["-Oz", "-c"]
CHILDREN = 8  # of a generation
BY_HAND = [  # a first version, and two edits
    "callee_basic_block_count < 2",
    "(callee_basic_block_count < 2) | (callee_users < 2)",
    "(cost_estimate < 20) | (callee_users < 2)",
]


def fetch(folder: Path, package: str, inside: str) -> list[Path]:
    """The C files of a folder of an sdist on PyPI."""
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "-d", folder, package], check=True)
    name = package.replace("==", "-")
    with tarfile.open(folder / f"{name}.tar.gz") as sdist:
        sdist.extractall(folder, [m for m in sdist if m.isreg() and m.name.endswith((".c", ".h"))])
    return sorted((folder / name / inside).glob("*.c"))


def programs(folder: Path, quick: bool) -> tuple[Corpus, Corpus]:
    """The modules to search on, and the held-out ones."""
    if quick:
        tiny = Corpus.from_sources(HERE / "tiny.c")
        return tiny, tiny
    whole = folder / "zopfli.c"  # its 12 files as one: more calls can be inlined
    files = fetch(folder, "zopfli==0.4.3", "zopfli/src/zopfli")
    whole.write_text("".join(f'#include "{file}"\n' for file in files))
    brotli = fetch(folder, "brotli==1.2.1", "c/dec")
    include = f"-I{brotli[0].parents[1] / 'include'}"
    held_out = [*fetch(folder, "lz4==4.4.5", "lz4libs"), *brotli]
    return Corpus.from_sources(whole), Corpus.from_sources(*held_out, flags=[include])


def sizes(task: Task, modules: Sequence[Module], policies: Sequence[str]) -> Any:
    """Bytes of .text of all modules with each policy: float64[policies]. One process serves them
    all."""
    candidates = [load(file_of(policy, "")) for policy in policies]

    def advise(batch: Any, rows: Any) -> Any:
        advice = np.zeros(len(batch), np.int64)
        for candidate in set(rows):
            mine = rows == candidate
            asked = {name: batch[name][mine] for name in FEATURES}
            advice[mine] = candidates[candidate](asked)[:, 0]
        return advice

    def reward(outcome: Any, baseline: Any) -> float:
        return outcome.scores["text"]

    found = candidate_rewards(advise, len(policies), task, modules, reward=reward)
    return np.nan_to_num(found, nan=np.inf).sum(axis=1)  # a failed compilation is the worst


def random_search(task: Task, modules: Sequence[Module], count: int, seed: int) -> str:
    """The best of this many random texts."""
    rng = random.Random(seed)
    tried = [fresh(rng) for _ in range(count)]
    return tried[int(sizes(task, modules, tried).argmin())]


def evolve(task: Task, modules: Sequence[Module], count: int, seed: int) -> str:
    """As many texts, in generations that change the best texts so far."""
    rng = random.Random(seed)
    tried: dict[str, float] = {}
    while len(tried) < count:
        best = sorted(tried, key=lambda text: tried[text])[: CHILDREN // 2]
        new: set[str] = set()
        while len(new) < min(CHILDREN, count - len(tried)):
            text = changed(rng.choice(best), rng.choice(best), rng) if best else fresh(rng)
            new |= {text} - tried.keys()
        children = sorted(new)
        tried.update(zip(children, sizes(task, modules, children), strict=True))
    return min(tried, key=lambda text: tried[text])


def by_file(policy: Path, modules: Sequence[Module], folder: Path) -> float:
    """Bytes of .text with a policy's file, using `shmbridge run` as a user would."""
    total = 0.0
    for module in modules:
        run = [
            "shmbridge",
            "run",
            "--llvm",
            "inline",
            "--strict",
            "--host",
            f"{policy}:advise",
            "--",
        ]
        clang = ["clang-22", *module.flags, *FLAGS, module.path, "-o", folder / "by_file.o"]
        subprocess.run([*run, *clang], check=True)
        total += text_size(folder / "by_file.o")
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a smoke test of about ten seconds")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--candidates", type=int)
    args = parser.parse_args()
    seeds, count = (
        args.seeds or (1 if args.quick else 3),
        args.candidates or (16 if args.quick else 24),
    )
    start = time.monotonic()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    policy = results / "policy.py"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        task = Task(
            ["clang-22", *FLAGS, "{module}", "-o", "{output}"],
            llvm="inline",
            scores={"text": text_size},
        )
        search, held_out = programs(folder, args.quick)
        llvm = [sum(task.baseline(m)["text"] for m in modules) for modules in (search, held_out)]
        print(f"clang-22 -Oz: {llvm[0]:.0f} bytes of .text, held out {llvm[1]:.0f}\n\nby hand:")
        for text in BY_HAND:
            policy.write_text(file_of(text, "By hand."))
            began = time.monotonic()
            size = by_file(policy, search, folder)
            print(
                f"  {size:6.0f} bytes {size / llvm[0] - 1:+6.1%}, {time.monotonic() - began:.1f} s: {text}"
            )

        found: dict[str, list[str]] = {"by hand, the last": BY_HAND[-1:]}
        speed: dict[str, float] = {}
        print(f"\nsearched: {seeds} x {count} candidates with each method")
        for way, run in (("random search", random_search), ("evolution", evolve)):
            began = time.monotonic()
            found[way] = [run(task, search, count, seed) for seed in range(seeds)]
            speed[way] = 60 * seeds * count / (time.monotonic() - began)
        table = {}
        for way, texts in found.items():
            table[way] = [
                (1 - sizes(task, part, texts) / total).tolist()
                for part, total in zip((search, held_out), llvm, strict=True)
            ]
        print(
            "compared with clang's own; [range of the seeds]         searched on                held out"
        )
        for way, parts in table.items():
            cells = [f"{-np.mean(p):+6.1%} [{-max(p):+6.1%}, {-min(p):+6.1%}]" for p in parts]
            rate = f"  {speed[way]:.0f} candidates a minute" if way in speed else ""
            print(f"  {way:48} {'  '.join(cells)}{rate}")

        best = found["evolution"][int(np.argmax(table["evolution"][0]))]
        policy.write_text(file_of(best, "Found by evolution."))
        size, told = by_file(policy, search, folder), sizes(task, search, [best])[0]
        print(
            f"\n{policy.relative_to(HERE)}: {best}\nby `shmbridge run`: {size:.0f} bytes, in the search: {told:.0f}"
        )
        assert size == told
    print(f"{time.monotonic() - start:.0f} s in total")
    (results / "results.json").write_text(
        json.dumps(
            {"improvement": table, "policies": found, "candidates_a_minute": speed}, indent=1
        )
    )


if __name__ == "__main__":
    main()

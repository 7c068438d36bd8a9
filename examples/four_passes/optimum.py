"""Finds the best sequence of up to four passes. It tries all of them, but continues equal modules
only once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from environment import PASSES, RESULTS, STEPS

from shmbridge.training import Corpus, Module

FILE = RESULTS / "optimum.json"
CHOICES = [action for action, line in enumerate(PASSES) if line != "stop"]


def optimum(corpus: Corpus, steps: int = STEPS) -> dict[str, Graph]:
    """The graph of each program. Results of an earlier run with the same opt come from
    results/optimum.json."""
    RESULTS.mkdir(exist_ok=True)
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    version = subprocess.run(["opt-22", "--version"], capture_output=True, text=True).stdout
    found = {}
    for module in corpus:
        said = f"{version} {PASSES} {steps}".encode() + module.path.read_bytes()
        key = f"{module.path.stem} {hashlib.sha256(said).hexdigest()}"
        if key not in known:
            known[key] = search(module, steps)
            FILE.write_text(json.dumps(known))
        found[module.name] = Graph(**known[key])
    return found


@dataclass
class Graph:
    """The distinct modules that passes make of a program, numbered; 0 is the program.

    Attributes:
        counts: The instructions of each.
        edges: For each module, the resulting module of each action; none after the last pass.
        ways: The first sequence of actions that led to each module.
    """

    counts: list[int]
    edges: list[list[int]]
    ways: list[list[int]]

    @property
    def best(self) -> int:
        """The fewest instructions."""
        return min(self.counts)

    def part(self, count: float) -> float:
        """The part of the greatest possible decrease."""
        return (self.counts[0] - count) / (self.counts[0] - self.best)

    def random(self, random: np.random.Generator, sequences: int, steps: int = STEPS) -> int:
        """The best of this many random sequences. All actions, `stop` too, are equally likely."""
        best = self.counts[0]
        for _ in range(sequences):
            at = 0
            for action in random.integers(len(PASSES), size=steps):
                if PASSES[action] == "stop":
                    break
                at = self.edges[at][CHOICES.index(action)]
            best = min(best, self.counts[at])
        return best


def search(module: Module, steps: int) -> dict[str, Any]:
    """Searches breadth first, with one compiler for each CPU."""
    code, text = after(module.path.read_bytes(), "verify")
    seen = {text: 0}
    counts, edges, ways = [count(text)], list[list[int]](), list[list[int]]([[]])
    level = [code]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in range(steps):
            jobs = [(code, PASSES[action]) for code in level for action in CHOICES]
            ended = pool.map(lambda job: after(*job), jobs)
            first, level = len(edges), []
            for number, (code, text) in enumerate(ended):
                at, action = first + number // len(CHOICES), CHOICES[number % len(CHOICES)]
                if text not in seen:
                    seen[text] = len(counts)
                    counts.append(count(text))
                    ways.append([*ways[at], action])
                    level.append(code)
                edges += [[]] * (at == len(edges))
                edges[at] = [*edges[at], seen[text]]
    return {"counts": counts, "edges": edges, "ways": ways}


def after(code: bytes, passes: str) -> tuple[bytes, bytes]:
    """Bitcode after some passes, and its text without names, which depend on the passes."""
    command = ["opt-22", "-discard-value-names", f"-passes={passes},print", "-", "-o", "-"]
    done = subprocess.run(command, input=code, capture_output=True, check=True)
    return done.stdout, done.stderr


def count(text: bytes) -> int:
    """The instructions of IR in text."""
    bodies = re.findall(rb"^define [^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return sum(len(re.findall(rb"^  [^\s\];]", body, re.MULTILINE)) for body in bodies)

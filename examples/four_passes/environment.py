"""The environment: opt-22 with the plug-in of ../phase_ordering asks for up to four passes of
passes.txt for a program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import shared

from shmbridge.envs import CompilerVectorEnv
from shmbridge.training import Corpus, Task, Workers
from shmbridge.training.scores import ir_instructions

HERE = Path(__file__).absolute().parent
BUILD = HERE / "build"
RESULTS = HERE / "results"
PASSES = [line for line in (HERE / "passes.txt").read_text().split("\n") if line and line[0] != "#"]
STEPS = 4
TRAIN = ("sums", "twins", "helpers", "constants", "branches", "repeats")
HELD_OUT = ("matrix", "words", "heap", "core-random", "core-dtype", "csmith")
CSMITH = "csmith --seed 7 --max-funcs 3 --max-block-size 2 --no-arrays --no-structs --no-unions"


def prepare(
    train: Sequence[str] = TRAIN, held_out: Sequence[str] = HELD_OUT
) -> tuple[Corpus, Corpus]:
    """Builds the plugin and the bitcode.

    Returns:
        The training programs and the held-out programs.
    """
    shared.build(HERE.parent / "phase_ordering", BUILD, shared.llvm())
    return tuple(  # type: ignore[return-value]
        Corpus.from_sources(*filter(None, map(bitcode, names))) for names in (train, held_out)
    )


def bitcode(name: str) -> Path | None:
    """A program from clang's front end, before any pass. None: csmith is not installed."""
    source, flags = HERE / "programs" / f"{name}.c", list[str]()
    if name.startswith("core-"):  # shmbridge's own
        core = Path(shared.said("shmbridge", "config", "--prefix")) / "src"
        source = next(core.rglob(f"{name[5:]}.c"))
        flags = [f"-I{core}", f"-I{core.parent / 'include'}", "-D_GNU_SOURCE"]
    if name == "csmith":
        if not shutil.which("csmith"):
            return None
        text = shared.said(*CSMITH.split())
        source, flags = BUILD / "csmith.c", ["-I/usr/include/csmith", "-w"]
        source.write_text(text)
    output = BUILD / f"{name}.bc"
    plain = ["-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c"]
    shared.said("clang-22", *plain, *flags, str(source), "-o", str(output))
    return output


def task(scored: bool = False, steps: int = STEPS) -> Task:
    """opt on a program. The plug-in reports rewards; scored: also count the remaining
    instructions."""
    how = f"actions={HERE / 'passes.txt'};steps={steps};repeat"
    plugin = BUILD / "phase-ordering.so"
    command = ["opt-22", f"-load-pass-plugin={plugin}", f"-passes=phase-ordering<{how}>"]
    scores = {"instructions": ir_instructions} if scored else {}
    return Task([*command, "{module}", "-S", "-o", "{output}"], scores=scores)


def environment(
    corpus: Corpus, num_envs: int = 4, seed: int = 0, steps: int = STEPS, **options: Any
) -> Any:
    """A vector of opts, each of which compiles one program of the corpus after another.

    Args:
        corpus: The programs.
        num_envs: How many opts run at once.
        seed: Seed for the order of the programs.
        steps: Maximum passes in an episode.
        options: As `CompilerVectorEnv`.

    Returns:
        A `CompilerVectorEnv`: observations "counters", float32[99], "used", float32[9], and
            "action_mask", int8[9]; nine actions.
    """
    workers = Workers(task(steps=steps), corpus.sampler(seed))
    name = f"shm://four-passes-{os.getpid()}-{seed}"
    return CompilerVectorEnv(name, num_envs, actions=len(PASSES), workers=workers, **options)

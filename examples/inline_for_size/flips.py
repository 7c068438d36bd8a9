"""How good are LLVM's own decisions? Reverses one in each compilation: python flips.py [--quick]

See README.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import programs
import run
from policy import Array, imitate

from shmbridge.training import Module, Task, candidate_rewards, collect

MOST = 250  # questions of a file: a compilation for each
BANDS = [-np.inf, -20, 5, 20, 80, np.inf]  # of LLVM's cost estimate; below 5 it inlines


def flipped(module: Module, count: int, task: Task) -> Array:
    """The bytes saved if only decision i is reversed: float64[count]."""
    asked = np.zeros(count, np.int64)  # questions of each compilation so far

    def decide(batch: Any, rows: Array) -> Array:
        default = batch["inlining_default"][:, 0]
        advice = np.where(asked[rows] == rows, 1 - default, default)
        asked[rows] += 1
        return advice

    return candidate_rewards(decide, count, task, [module], reward=run.bytes_saved)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny programs, in a few seconds")
    run.BUILD.mkdir(exist_ok=True)
    quick = parser.parse_args().quick
    train, _ = programs.ours(run.HERE / "tiny") if quick else programs.real(run.BUILD)
    task = run.task(run.COMPILE, llvm="inline", include_default=True)
    episodes = collect(lambda batch: batch["inlining_default"], task, train)
    episodes = [e for e in episodes if 0 < len(e) <= MOST]
    saved = np.concatenate([flipped(e.module, len(e), task) for e in episodes])
    program = np.repeat([e.module.name.split("/")[0] for e in episodes], [len(e) for e in episodes])
    columns = run.joined(episodes)
    default, cost = columns.pop("inlining_default")[:, 0], columns["cost_estimate"][:, 0]

    print(f"\n{'cost estimate':>16}{'decisions':>11}{'better reversed':>22}{'bytes':>8}")
    for low, high in zip(BANDS, BANDS[1:], strict=False):
        here = (cost >= low) & (cost < high)
        gains = saved[here & (saved > 0)]
        print(f"{low:7.0f} to {high:5.0f}{here.sum():11}{len(gains):22}{-gains.sum():8.0f}")

    print(
        "\nDecisions changed by a policy that learnt the better ones of the other programs, and bytes:"
    )
    better = np.where(saved > 0, 1 - default, default)
    for left_out in np.unique(program):
        there = program != left_out
        policy = imitate({n: c[there] for n, c in columns.items()}, better[there], seed=0)
        decided = policy.decide({n: c[~there] for n, c in columns.items()})
        changed = decided != default[~there]
        bytes_saved = saved[~there][changed].sum()
        print(f"{left_out:18}{changed.sum():5}, {-bytes_saved:+.0f} bytes")


if __name__ == "__main__":
    main()

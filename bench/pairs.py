"""Pairs of processes that hand each other a turn, measured in short alternating blocks."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (4, 2_000, 100_000, 10_000_000)  # bytes; 2000 is float32[500]
ROOM = 12 << 20  # bytes of a request slot: the largest message and some more
SPIN, DEFAULT, BLOCK = 2, 0, 3  # shmb_wait


class Pair:
    """A far side that serves and a near side that asks. The far side is stopped except while its block runs, so that
    every far side can have the same core."""

    def __init__(self, name: str, far: Sequence[str], near: Sequence[str], fds: Sequence[int] = ()) -> None:
        self.name = name
        self.far = subprocess.Popen(far, stdout=subprocess.PIPE, text=True, pass_fds=fds)
        line = self._answer(self.far)
        self.near = subprocess.Popen(
            [a.replace("{NAME}", line) for a in near],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=fds,
        )
        self._answer(self.near)
        self.far.send_signal(signal.SIGSTOP)

    def _answer(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout
        line = process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{self.name}: {process.args} ended with {process.wait()}")
        return line

    def block(self, size: int, seconds: float) -> tuple[float, list[int]]:
        """One block: the median ns of a round trip, and single ones, each timed alone."""
        assert self.near.stdin
        self.far.send_signal(signal.SIGCONT)
        print(size, round(seconds * 1e9), file=self.near.stdin, flush=True)
        median, *singles = self._answer(self.near).split()
        self.far.send_signal(signal.SIGSTOP)
        return float(median), [int(s) for s in singles]

    def close(self) -> None:
        self.far.send_signal(signal.SIGCONT)
        assert self.near.stdin
        self.near.stdin.close()
        self.near.wait(10)
        self.far.terminate()
        self.far.wait(10)


@dataclass
class Row:
    """A pair at one size, against a base whose blocks ran just before and after each of its own."""

    pair: Pair
    size: int
    blocks: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    singles: list[int] = field(default_factory=list)

    def add(self, before: float, block: tuple[float, list[int]], after: float) -> None:
        self.blocks.append(block[0])
        self.ratios.append(2 * block[0] / (before + after))
        self.singles += block[1]

    def result(self) -> dict[str, object]:
        quantiles = {f"p{q:g}": percentile(self.singles, q) for q in (50, 90, 99, 99.9)}
        return {
            "pair": self.pair.name,
            "bytes": self.size,
            "ns": round(statistics.median(self.blocks), 1),
            "ratio": round(statistics.median(self.ratios), 2),
            "ratio_quartiles": [round(q, 2) for q in statistics.quantiles(self.ratios, n=4)[::2]]
            if len(self.ratios) > 1
            else None,
            "blocks": len(self.blocks),
            "single_ns": quantiles,
            "singles": len(self.singles),
        }


def alternate(rows: Sequence[Row], base: Pair, rounds: int, seconds: float, alone: float) -> int:
    """Measures all rows by turns, a block of the base between every two. A base's block above `alone` ns means that
    something else had one of the cores: what stands beside it does not count. Returns how many blocks that were."""
    lost = 0
    for _ in range(rounds):
        before = base.block(4, seconds / 2)[0]
        for row in rows:
            block = row.pair.block(row.size, seconds)
            after = base.block(4, seconds / 2)[0]
            if max(before, after) < alone:
                row.add(before, block, after)
            else:
                lost += 1
            before = after
    return lost


def percentile(values: list[int], q: float) -> int | None:
    """None where there are too few values to tell."""
    if len(values) * (100 - q) < 300:
        return None
    return sorted(values)[int(len(values) * q / 100)]


def bare(build: Path, kind: str, cores: tuple[int, int]) -> Pair:
    near, far = (["taskset", "-c", str(core), str(build / "bare")] for core in cores)
    if kind == "pipe":
        (to_far, from_near), (to_near, from_far) = os.pipe(), os.pipe()
        fds: list[int] = [to_far, from_near, to_near, from_far]
        ends = [str(to_far), str(from_far)], [str(to_near), str(from_near)]
    else:
        memory = os.memfd_create("bench")
        os.ftruncate(memory, ROOM)
        fds = [memory]
        ends = [str(memory)], [str(memory)]
    pair = Pair(kind, [*far, "far", kind, *ends[0]], [*near, "near", kind, *ends[1]], fds)
    for fd in fds:
        os.close(fd)
    return pair


def c_host(build: Path, wait: int, core: int) -> list[str]:
    return [str(build / "host"), str(wait), str(core), str(ROOM), "1"]


def c_runner(build: Path, wait: int, core: int) -> list[str]:
    return [str(build / "runner"), "{NAME}", str(wait), str(core)]


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, str(HERE / program), *map(str, arguments)]

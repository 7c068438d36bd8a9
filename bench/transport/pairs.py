"""Pairs of processes that alternate, measured in short alternating blocks."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.program import python

ROOM = 12 << 20  # bytes of a request slot: more than the largest message


class Pair:
    """A far side that serves and a near side that asks. The far side, with all processes that it
    starts, is stopped except while its block runs, so that every far side can have the same core.
    far is None where the near side does all of it in process."""

    def __init__(
        self, name: str, far: Sequence[str] | None, near: Sequence[str], fds: Sequence[int] = ()
    ) -> None:
        self.name = name
        self.near: subprocess.Popen[str] | None = None
        self.far = (
            subprocess.Popen(
                far, stdout=subprocess.PIPE, text=True, pass_fds=fds, start_new_session=True
            )
            if far
            else None
        )
        try:
            self.bridge = self._line(self.far) if self.far else ""
            near = [a.replace("{NAME}", self.bridge) for a in near]
            self.near = subprocess.Popen(
                near, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=fds
            )
            self.said = self._line(self.near)
        except BaseException:
            self.close()
            raise
        self.signal(signal.SIGSTOP)

    def signal(self, number: int) -> None:
        if self.far and self.far.poll() is None:
            os.killpg(self.far.pid, number)

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout
        line = process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{self.name}: {process.args!r} ended with {process.wait()}")
        return line

    def block(self, size: int, seconds: float) -> tuple[float, list[int]]:
        """One block: the median ns of a round trip, and single ones, each timed alone."""
        assert self.near and self.near.stdin
        self.signal(signal.SIGCONT)
        print(size, round(seconds * 1e9), file=self.near.stdin, flush=True)
        median, *singles = self._line(self.near).split()
        self.signal(signal.SIGSTOP)
        return float(median), [int(s) for s in singles]

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        if self.near and self.near.stdin:
            self.near.stdin.close()
            self.near.wait(10)
        if self.far:
            self.signal(signal.SIGTERM)
            self.far.wait(10)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Row:
    """One kind of pair at one size, against a base whose blocks ran just before and after each of
    its own."""

    name: str
    size: int
    blocks: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    singles: list[int] = field(default_factory=list)

    def add(self, before: float, block: tuple[float, list[int]], after: float) -> None:
        self.blocks.append(block[0])
        self.ratios.append(2 * block[0] / (before + after))
        self.singles += block[1]

    def result(self) -> dict[str, object]:
        """Medians over the blocks, and percentiles of all round trips that were timed alone."""
        low, high = (
            statistics.quantiles(self.ratios, n=4)[::2] if len(self.ratios) > 1 else 2 * self.ratios
        )
        ordered = sorted(self.singles)
        return {
            "pair": self.name,
            "bytes": self.size,
            "ns": round(statistics.median(self.blocks), 1),
            "ratio": round(statistics.median(self.ratios), 2),
            "ratio_quartiles": [round(low, 2), round(high, 2)],
            "blocks": len(self.blocks),
            "single_ns": {f"p{q:g}": percentile(ordered, q) for q in (50, 90, 99, 99.9)},
            "singles": len(ordered),
        }


def percentile(ordered: Sequence[int], q: float) -> int | None:
    """None if fewer than three values are beyond it."""
    return ordered[int(len(ordered) * q / 100)] if len(ordered) * (100 - q) >= 300 else None


def alternate(
    rows: Sequence[tuple[Row, Pair]],
    base: Pair,
    base_size: int,
    rounds: int,
    seconds: float,
    alone: float,
) -> int:
    """Alternates all rows, with a block of the base between every two. A base's block above `alone`
    ns means that something else had one of the cores, so the adjacent blocks do not count. Returns
    the number of such blocks."""
    lost = 0
    for _ in range(rounds):
        before = base.block(base_size, seconds / 2)[0]
        for row, pair in rows:
            block = pair.block(row.size, seconds)
            after = base.block(base_size, seconds / 2)[0]
            if max(before, after) < alone or not row.blocks:
                row.add(before, block, after)
            else:
                lost += 1
            before = after
    return lost


# ---- Who takes part ----


@dataclass
class Place:
    """The folder of the built programs, and the two cores."""

    build: Path
    near: int
    far: int

    def bare(self, kind: str) -> Pair:
        """bare.c: kind is line, lines, semaphore or pipe."""
        near, far = (
            ["taskset", "-c", str(core), str(self.build / "bare")] for core in (self.near, self.far)
        )
        if kind == "pipe":
            (far_in, near_out), (near_in, far_out) = os.pipe(), os.pipe()
            fds = [far_in, near_out, near_in, far_out]
            far_fds, near_fds = [far_in, far_out], [near_in, near_out]
        else:
            memory = os.memfd_create("bench")
            os.ftruncate(memory, ROOM)
            fds = far_fds = near_fds = [memory]
        try:
            return Pair(
                kind,
                [*far, "far", kind, *map(str, far_fds)],
                [*near, "near", kind, *map(str, near_fds)],
                fds,
            )
        finally:
            for fd in fds:
                os.close(fd)

    def c_host(self, wait: str, channels: int = 1, room: int = ROOM) -> list[str]:
        return [str(self.build / "host"), wait, str(self.far), str(room), str(channels)]

    def c_runner(self, wait: str, *more: str) -> list[str]:
        return [str(self.build / "runner"), "{NAME}", wait, str(self.near), *more]

    def python_host(
        self, wait: str, busy: str = "idle", channels: int = 1, room: int = ROOM, *more: str
    ) -> list[str]:
        return python("python_host", wait, self.far, busy, room, channels, *more)

    def python_runner(self, wait: str) -> list[str]:
        return python("python_runner", "{NAME}", wait, self.near)

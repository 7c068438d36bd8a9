"""The same question through shared memory and through a pair of named pipes, in alternating blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

import shmbridge

Times = npt.NDArray[np.int64]  # ns, [blocks, 2, questions]: shared memory first
BLOCKS, QUESTIONS, WARM_UP = 21, 500, 1  # WARM_UP: blocks that do not count


@dataclass(frozen=True)
class Percentiles:
    """Of single round trips, in us."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, times: Times) -> Percentiles:
        """times: ns, any shape."""
        return cls(*(np.percentile(times, (50, 90, 99)) / 1e3).tolist())


@dataclass(frozen=True)
class Result:
    """ratio: the pipes' median over shared memory's, block by block; the median of those."""

    memory: Percentiles
    pipes: Percentiles
    ratio: float

    @classmethod
    def of(cls, times: Times) -> Result:
        """Without the first blocks, which warm up."""
        counted = times[WARM_UP:]
        medians = np.median(counted, axis=2)
        memory, pipes = Percentiles.of(counted[:, 0]), Percentiles.of(counted[:, 1])
        return cls(memory, pipes, float(np.median(medians[:, 1] / medians[:, 0])))


@contextmanager
def pipe_server(directory: Path, model: str) -> Iterator[tuple[Path, Path]]:
    """A model (see demo.pipe) in a process of its own, behind a pair of named pipes: (questions, answers)."""
    questions, answers = directory / "questions", directory / "answers"
    for path in (questions, answers):
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
    command = [sys.executable, "-m", "shmbridge.demo.pipe", str(questions), str(answers), model]
    server = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE
    )  # Python imports from its directory first
    assert server.stdout
    try:
        if not server.stdout.readline():
            raise click.ClickException(
                "the model behind the pipes did not start"
            )  # and has said why
        yield questions, answers
    finally:
        server.terminate()
        server.communicate()


def in_c(
    program: Path, url: str, pipes: tuple[Path, Path], question: npt.NDArray[np.float32]
) -> Times:
    """By race.c. ClickException: what it said."""
    command = list(map(str, (program, url, *pipes, BLOCKS, QUESTIONS)))
    done = subprocess.run(
        command, input=question.tobytes(), capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        raise click.ClickException(f"{program.name}: {done.stderr.decode().strip()}")
    return np.frombuffer(done.stdout, np.int64).reshape(BLOCKS, 2, QUESTIONS)


def in_python(url: str, pipes: tuple[Path, Path], question: npt.NDArray[np.float32]) -> Times:
    """The same without a compiler."""
    times = np.zeros((BLOCKS, 2, QUESTIONS), np.int64)
    to, back = os.open(pipes[0], os.O_WRONLY), os.open(pipes[1], os.O_RDONLY)
    try:
        with shmbridge.connect(url) as runner:
            for block in times:
                for i in range(QUESTIONS):
                    start = time.perf_counter_ns()
                    runner.evaluate({"features": question})
                    block[0, i] = time.perf_counter_ns() - start
                for i in range(QUESTIONS):
                    start = time.perf_counter_ns()
                    os.write(to, question.tobytes())
                    np.frombuffer(os.read(back, 8), np.int64)
                    block[1, i] = time.perf_counter_ns() - start
    finally:
        os.close(to)
        os.close(back)
    return times

"""The same question through shared memory and through a pair of named pipes, in alternating blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

import shmbridge

Times = npt.NDArray[np.int64]  # ns, [blocks, 2, questions]: shared memory first
BLOCKS, QUESTIONS, WARM_UP = 21, 500, 1  # WARM_UP: blocks that do not count


def summary(times: Times) -> tuple[npt.NDArray[np.float64], float]:
    """Percentiles 50, 90 and 99 in us, a row for shared memory and one for the pipes; and how many times as long the pipes' median is
    as shared memory's, block by block: the median of those. The first blocks, which warm up, do not count."""
    counted = times[WARM_UP:]
    medians = np.median(counted, axis=2)
    percentiles = np.percentile(counted, (50, 90, 99), axis=(0, 2)).T / 1e3
    return percentiles, float(np.median(medians[:, 1] / medians[:, 0]))


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
            ways = (
                lambda: runner.evaluate({"features": question}),
                lambda: (os.write(to, question.tobytes()), os.read(back, 8)),
            )
            for block, (way, ask), i in product(times, enumerate(ways), range(QUESTIONS)):
                start = time.perf_counter_ns()
                ask()
                block[way, i] = time.perf_counter_ns() - start
    finally:
        os.close(to)
        os.close(back)
    return times

"""Shows a training: a bar in a terminal, a growing CSV file, TensorBoard."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shmbridge.errors import InvalidError
from shmbridge.training._compilation import OutcomeKind
from shmbridge.training.checkpoint import write_whole

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

File: TypeAlias = "str | os.PathLike[str]"

LATEST = 100  # episodes of which the bar shows the mean reward
FIXED = ("seconds", "episodes", "reward")  # columns that every file has
INSTALL = "pip install 'shmbridge[progress]'"


class Progress:
    """Shows the progress of a training. Call its methods from one thread.

    In a terminal and in a notebook, a bar on standard error shows the episodes, their rate, the
    mean reward of the last 100, and the failures by kind.

    Args:
        path: The CSV file. None: no file. Its columns are "seconds" and "episodes" since the
            beginning, "reward" (the mean of the episodes since the previous row), a column for each
            kind of failure with its count since the beginning, and the values passed to `log`.
        total: The planned number of episodes, for the bar.
        tensorboard: A folder for TensorBoard's events, by number of episodes. None: no events.
        rows: Resumes after this number of rows of the file and removes later rows. None: a new
            file.

    Attributes:
        total: As given.
        episodes: How many have ended.
        failures: How many of them failed, by `Outcome.kind`.

    Raises:
        InvalidError: The file has fewer rows.
        ImportError: TensorBoard is not installed.
        OSError: The file cannot be read or written.
    """

    def __init__(
        self,
        path: File | None = None,
        *,
        total: int | None = None,
        tensorboard: File | None = None,
        rows: int | None = None,
    ) -> None:
        self.episodes, self.failures = 0, Counter[str]()
        self._path = None if path is None else Path(path)
        self._columns, self._table = list(FIXED), list[dict[str, Any]]()
        self._rewards = list[float]()  # since the last row
        self._latest = list[float]()
        self._returns = np.zeros(0)  # of episodes under way, by environment
        self._began = time.monotonic()
        if rows is not None:
            self._resume(rows)
        self._write_all()
        self._events = None if tensorboard is None else _events(tensorboard)
        self.total = total
        self._bar = _bar(total, self.episodes)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the bar and TensorBoard's file. You may call it twice."""
        if self._bar is not None:
            self._bar.refresh()  # a notebook would keep an older one
            self._bar.stop()
        if self._events is not None:
            self._events.close()

    @property
    def rows(self) -> int:
        """The number of rows in the file, to store in a checkpoint."""
        return len(self._table)

    def add(self, reward: float, kind: str = "ok") -> None:
        """Counts an episode that has ended.

        Args:
            reward: The sum of its rewards. NaN is not included in means.
            kind: How it ended, as in `Outcome.kind`.
        """
        self.episodes += 1
        if kind != "ok":
            self.failures[kind] += 1
        self._rewards.append(float(reward))
        self._latest = [*self._latest[1 - LATEST :], float(reward)]
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.episodes, told=self._told())

    def step(
        self,
        rewards: Any,
        terminations: Any,
        truncations: Any,
        infos: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    ) -> None:
        """Takes the results of an environment's `step`, without the observations, and counts the
        episodes that have ended.

        Args:
            rewards: float[n], or the reward of a single environment.
            terminations, truncations: bool[n], or one bool.
            infos: A dict as in Gymnasium, or a list as in Stable-Baselines3.
        """
        rewards = np.atleast_1d(np.asarray(rewards, float))
        over = np.logical_or(np.atleast_1d(terminations), np.atleast_1d(truncations))
        if len(self._returns) != len(rewards):
            self._returns = np.zeros(len(rewards))
        self._returns += rewards
        for row in np.flatnonzero(over):
            kind = _kind(infos, int(row))
            self.add(self._returns[row] if kind == "ok" else math.nan, kind)
            self._returns[row] = 0

    def log(self, **values: float) -> None:
        """Writes a row with the episodes since the previous one, and these values.

        Args:
            values: Numbers by name, such as a loss. New names may appear later.

        Raises:
            OSError: The file cannot be written.
        """
        row: dict[str, Any] = {
            "seconds": round(time.monotonic() - self._began, 3),
            "episodes": self.episodes,
            "reward": _mean(self._rewards),
            **self.failures,
            **{name: float(value) for name, value in values.items()},
        }
        self._rewards.clear()
        self._table.append(row)
        new = [name for name in row if name not in self._columns]
        self._columns += new
        if self._path is not None and new:
            self._write_all()
        elif self._path is not None:
            with self._path.open("a", newline="") as file:
                file.write(self._text([row]))  # one write: a kill leaves whole rows
        if self._events is not None:
            _tell(self._events, self.episodes, row)

    # ---- Within ----

    def _resume(self, rows: int) -> None:
        found = _read(self._path) if self._path is not None else []
        if len(found) < rows:
            raise InvalidError(f"{self._path}: expected {rows} rows or more, found {len(found)}")
        self._table = found[:rows]
        if not rows:
            return
        last = self._table[-1]
        self._columns = [*last]
        self.episodes = int(last["episodes"])
        self._began -= last["seconds"]
        self.failures.update({kind: int(last[kind]) for kind in KINDS if last.get(kind, 0) > 0})

    def _write_all(self) -> None:
        if self._path is not None:
            header = self._text([dict(zip(self._columns, self._columns, strict=True))])
            write_whole(self._path, (header + self._text(self._table)).encode())

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        for row in rows:
            values = [_number(row.get(name, math.nan)) for name in self._columns]
            csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue()

    def _told(self) -> str:
        failed = ", ".join(f"{kind} {count}" for kind, count in self.failures.most_common())
        return f"reward {_mean(self._latest):+.3f}{f'  [red]{failed}[/]' if failed else ''}"


# What an environment without workers reports is an "error".
KINDS = (*(kind for kind in OutcomeKind if kind != OutcomeKind.OK), "error")


def _kind(infos: Any, row: int) -> str:
    """How the episode of an environment ended."""
    if not isinstance(infos, Mapping):
        infos, row = infos[row], 0
    infos = infos.get("final_info", infos)
    for name in ("kind", "error"):
        if name in infos and (f"_{name}" not in infos or infos[f"_{name}"][row]):
            value = infos[name]
            return str(value if isinstance(value, str) else value[row]) if name == "kind" else name
    return "ok"


def _number(value: Any) -> Any:
    """The same text for what was counted and for what was read again."""
    if value != value:
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _mean(rewards: Sequence[float]) -> float:
    known = [reward for reward in rewards if reward == reward]
    return float(np.mean(known)) if known else math.nan


def _read(path: File) -> list[dict[str, float]]:
    """The rows of a file that `Progress` wrote; NaN where there is no value."""
    with Path(path).open(newline="") as file:
        rows = csv.DictReader(file)
        return [{name: float(value or "nan") for name, value in row.items()} for row in rows]


# ---- The bar, and TensorBoard ----


def _bar(total: int | None, done: int) -> Bar | None:
    """None where standard error is no terminal and this is no notebook."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import Task as Shown

    class Rate(TextColumn):
        def render(self, task: Shown) -> Any:
            from rich.text import Text

            return Text(f"{task.speed:.1f} episodes/s" if task.speed else "")

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        return None
    columns = [MofNCompleteColumn(), Rate(""), TextColumn("{task.fields[told]}")]
    bar = Progress(BarColumn(), *columns, TimeElapsedColumn(), console=console)
    bar.add_task("", total=total, completed=done, told="")
    bar.start()
    return bar


def _events(folder: File) -> Any:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ImportError(f"tensorboard= needs TensorBoard: {INSTALL}") from error
    return EventFileWriter(str(folder))


def _tell(events: Any, step: int, row: Mapping[str, float]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=row[name]) for name in row if name != "episodes"]
    events.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
    events.flush()

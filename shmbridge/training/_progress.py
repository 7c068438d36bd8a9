"""Shows a training: a bar in a terminal, a CSV file, TensorBoard."""

from __future__ import annotations

import csv
import io
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import progress as bars
from rich.console import Console

from shmbridge.errors import write_whole


class Progress:
    """Shows a training. In a terminal and in a notebook, a bar on standard error has the episodes,
    the mean reward of the last 100, and the failures by kind. Call its methods from one thread.

    Args:
        path: A CSV file, replaced at each `log`.
        total: The planned number of episodes, for the bar.
        tensorboard: A `SummaryWriter` of PyTorch or tensorboardX, which gets each row's values.
        rows: `rows` of an earlier run, to continue it.

    Attributes:
        rows: What was logged, a dict each: "seconds" and "episodes" since the beginning, "reward"
            (the mean since the previous row), "failures" since the beginning, and `log`'s values.
        episodes: How many have ended.
        failures: How many of them failed in this run, by `Outcome.kind`.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        total: int | None = None,
        tensorboard: Any = None,
        rows: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self.rows = [dict(row) for row in rows]
        last = self.rows[-1] if self.rows else {"seconds": 0, "episodes": 0, "failures": 0}
        self.episodes, self.failures = int(last["episodes"]), Counter[str]()
        self._failed, self._began = last["failures"], time.monotonic() - last["seconds"]
        self._path, self._tensorboard = path, tensorboard
        self._rewards, self._latest = list[float](), deque[float](maxlen=100)
        console = Console(stderr=True)
        columns = (
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[told]}"),
        )
        seen = console.is_terminal or console.is_jupyter
        self._bar = bars.Progress(*columns, console=console, disable=not seen)
        self._bar.add_task("", total=total, completed=self.episodes, told="")
        self._bar.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.refresh()  # a notebook would keep an older one
        self._bar.stop()

    def add(self, reward: float, kind: str = "ok") -> None:
        """Counts an episode that has ended.

        Args:
            reward: The sum of its rewards. NaN is not included in means.
            kind: How it ended, as in `Outcome.kind`.
        """
        self.episodes += 1
        self.failures.update([kind] if kind != "ok" else [])
        self._rewards.append(float(reward))
        self._latest.append(float(reward))
        failed = ", ".join(f"{kind} {count}" for kind, count in self.failures.most_common())
        told = f"reward {_mean(self._latest):+.3f}  [red]{failed}[/]"
        self._bar.update(bars.TaskID(0), completed=self.episodes, told=told)

    def log(self, **values: float) -> None:
        """Adds a row about the episodes since the previous one. OSError: it cannot be written.

        Args:
            values: More columns, such as a loss.
        """
        row = {"seconds": round(time.monotonic() - self._began, 3), "episodes": self.episodes}
        row |= {"reward": _mean(self._rewards), "failures": self._failed + self.failures.total()}
        row |= values
        self._rewards.clear()
        self.rows.append(row)
        if self._path is not None:
            names, text = {name: None for row in self.rows for name in row}, io.StringIO()
            table = csv.DictWriter(text, [*names])
            table.writeheader()
            table.writerows(self.rows)
            write_whole(self._path, text.getvalue().encode())
        for name, value in row.items() if self._tensorboard is not None else ():
            self._tensorboard.add_scalar(name, value, self.episodes)


def _mean(rewards: Iterable[float]) -> float:
    known = [reward for reward in rewards if reward == reward]
    return sum(known) / len(known) if known else math.nan

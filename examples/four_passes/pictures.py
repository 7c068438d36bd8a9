"""Draws the logs of several trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure


def save_curves(picture: Path, trainings: Mapping[str, Sequence[Path]]) -> None:
    """A curve for each name: the mean of its seeds, in a band from the worst to the best."""
    figure = Figure(layout="tight")
    axes = figure.subplots()
    for name, files in trainings.items():
        logs = [pd.read_csv(file).groupby("episodes")["reward"].mean() for file in files]
        seeds = pd.concat(logs, axis=1).sort_index()
        seeds = seeds.interpolate("index", limit_area="inside").dropna()
        axes.plot(seeds.index, seeds.mean(axis=1), label=name)
        axes.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), alpha=0.2)
    axes.set(xlabel="episodes", ylabel="reward")
    axes.legend()
    figure.savefig(picture)

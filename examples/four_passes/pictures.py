"""Draws the logs and results of several trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
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


def save_scores(folder: Path, scores: Mapping[str, Mapping[str, float]]) -> None:
    """A row for each program, and the geometric mean of the ratios to the first column."""
    table = pd.DataFrame.from_dict(scores, orient="index")
    ratios = table.div(table.iloc[:, 0], axis=0)
    ratios.loc["geometric mean"] = np.exp(np.log(ratios).mean())
    pd.concat([table, ratios.tail(1)]).to_csv(folder / "scores.csv", index_label="module")
    figure = Figure(figsize=(6.4, 1 + 0.5 * len(ratios)), layout="tight")
    axes = figure.subplots()
    (100 * (ratios.iloc[::-1, 1:] - 1)).plot.barh(ax=axes)
    axes.set_xlabel(f"% more than {table.columns[0]}")
    figure.savefig(folder / "scores.png")

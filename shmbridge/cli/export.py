"""shmbridge export: turns training logs into files that others read."""

from __future__ import annotations

from pathlib import Path

import click

from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import EXISTING_FILE, FILE
from shmbridge.logs import Dataset


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=EXISTING_FILE)
@click.argument("file", type=FILE)
def export(logs: tuple[Path, ...], file: Path) -> None:
    """Convert training logs of one layout to FILE, which must not exist. Its suffix selects the
    format.

    .tfrecord: TensorFlow's SequenceExamples, one for each context of each LOG; needs
    shmbridge[tfrecord]. .npz: numpy arrays, one for each feature, advice and score. .parquet: a
    table; needs pandas and pyarrow.
    """
    dataset, out = Dataset(logs), console()
    try:
        dataset.export(file)
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    out.print(f"{len(dataset)} records: {escape(str(file))}", soft_wrap=True)

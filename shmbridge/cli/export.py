"""shmbridge export: turns training logs into lines of JSON."""

import json
import math
from pathlib import Path
from typing import Any

import click
import numpy as np

from shmbridge.cli._console import console, escape
from shmbridge.cli._option_types import EXISTING_FILE, FILE
from shmbridge.errors import undone_by
from shmbridge.logs import Record, TrainingLog

LLVMS_DECISION = "inlining_default"  # the feature in which LLVM sends what it would do itself


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=EXISTING_FILE)
@click.argument("file", type=FILE)
def export(logs: tuple[Path, ...], file: Path) -> None:
    """Convert training logs to lines of JSON.

    FILE must not exist. It gets a line for each decision, with the "question" and the "advice",
    both by name, and, where the log has them, the "label" of the compilation, the "context", such
    as a function, the "decision", the compiler's own decision as "default", and the "score". Arrays
    are lists, an array of one element is that element, and NaN and the infinities, which JSON
    lacks, are text.
    """
    count = 0
    with file.open("x", encoding="utf-8") as out, undone_by(file.unlink):
        for log in logs:
            for record in TrainingLog(log):
                print(json.dumps(_line(record)), file=out)
                count += 1
    console().print(f"{count} records: {escape(str(file))}", soft_wrap=True)


def _line(record: Record) -> dict[str, Any]:
    default = record.features.get(LLVMS_DECISION)
    named = [{n: _value(v) for n, v in part.items()} for part in (record.features, record.advice)]
    line = {
        "label": record.label or None,
        "context": record.context if record.context != record.label else None,
        "decision": record.layout.decision,
        "question": named[0],
        "advice": named[1],
        "default": None if default is None else _value(default),
        "score": None if record.score is None else _value(record.score),
    }
    return {key: value for key, value in line.items() if value is not None}


def _value(value: np.ndarray[Any, Any]) -> Any:
    if value.dtype.kind not in "biuf":  # bfloat16
        value = value.astype(np.float64)
    return _finite(value.item() if value.size == 1 else value.tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

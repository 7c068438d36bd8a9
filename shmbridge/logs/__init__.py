"""LLVM's training log: what compilers asked and what they were advised, in a file.

The format is that of LLVM's TrainingLogger, which clang's and opt's -training-log=FILE write and
LLVM's log_reader.py reads:

    {"features":[SPEC, …],"score":SPEC,"advice":SPEC}   once; score and advice may be missing
    {"context":"NAME","label":"LABEL"}                  where it changes; both are optional
    {"observation":N}                                   from 0 in each context, then
    the tensors' bytes, back to back in the order of "features", in native byte order, and a newline
    {"outcome":N}                                       if there is a score: then its bytes and a
    newline

SPEC is {"name":"x","type":"float","port":0,"shape":[300]}. As in LLVM's training logs the advice is
the last of the "features", so any reader of that format has it. What shmbridge adds is ignored by
others:

- "advice" in the header is the spec of the first advice: it and all features behind it are advice.
  Without it (LLVM's own training logs) the last feature is the advice; where no feature has its
  name (what LLVM writes to a channel) none was logged.
- "label" is what the runner works on, for example the source file. A question without a context
  has its label as "context", so that other readers, too, see which source it is about.
- The string feature "context" is the context. The string feature "decision" is kept as "decision"
  in the header, and is what an advice that has no name of its own is called. Other strings and
  lists do not fit the format: they are left out.
- bool, float16 and bfloat16, which LLVM lacks, are unsigned integers of that size whose SPEC has
  "dtype" too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shmbridge.logs._dataset import Columns, Dataset
from shmbridge.logs._reader import (
    Input,
    Layout,
    Record,
    Spec,
    TornError,
    events,
    read_layout,
    record_of,
)
from shmbridge.logs._writer import LogWriter

__all__ = ["Columns", "Dataset", "Layout", "LogWriter", "Record", "Spec", "TrainingLog"]


class TrainingLog:
    """A log to iterate over, record by record. Records are read as they are asked for. Each
    iteration begins anew.

    Args:
        path: The file.

    Attributes:
        layout: What the header says.
        torn: What the last iteration found to be cut off at the end, as by a kill of the writer.
            "": nothing. The logger "shmbridge" gets it too.

    Raises:
        OSError: The file cannot be read.
        CorruptError: It is no such log. The text has the file's name and the place.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.torn = ""
        self.layout = read_layout(self.path)

    def __iter__(self) -> Iterator[Record]:
        self.torn = ""
        with Input(self.path) as file:
            try:
                for event in events(file, file.tensors):
                    yield record_of(*event)
            except TornError as torn:
                self.torn = torn.report(self.path)

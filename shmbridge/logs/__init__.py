"""LLVM's training log: a file of questions from compilers, with their advice.

The format is that of LLVM's TrainingLogger, which clang's and opt's -training-log=FILE write and
LLVM's log_reader.py reads:

    {"features":[SPEC, …],"score":SPEC,"advice":SPEC}   once; score and advice are optional
    {"context":"NAME","label":"LABEL"}                  at each change; both are optional
    {"observation":N}                                   from 0 in each context, then
    the tensors' bytes, back to back in the order of "features", in native byte order, and a newline
    {"outcome":N}                                       if there is a score: then its bytes and a
    newline

SPEC is {"name":"x","type":"float","port":0,"shape":[300]}. As in LLVM's training logs the advice is
the last of the "features", so any reader of that format can read it. Other readers ignore
shmbridge's extensions:

- "advice" in the header is the spec of the first advice: it and all later features are advice.
  Without it (LLVM's own training logs) the last feature is the advice. If no feature has its name
  (as on LLVM's channel), no advice was logged.
- "label" is a description of the runner, for example the source file. A question without a context
  has its label as "context", so that other readers also see its source.
- The string feature "context" is the context. The string feature "decision" is stored as "decision"
  in the header, and is the name of advice without its own name. Other strings and lists do not fit
  the format and are left out.
- bool, float16 and bfloat16, which LLVM lacks, are unsigned integers of that size whose SPEC also
  has "dtype".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from shmbridge.logs._reader import Input, Layout, Record, Spec, TornError, read_layout, records
from shmbridge.logs._writer import LogWriter

__all__ = ["Layout", "LogWriter", "Record", "Spec", "TrainingLog"]


class TrainingLog:
    """A log to iterate over, record by record. Records are read on demand. Each iteration starts at
    the beginning.

    Args:
        path: The file.

    Attributes:
        layout: The contents of the header.
        torn: A description of the incomplete end that the last iteration found, for example after a
            kill of the writer. "": none. The logger "shmbridge" also gets it.

    Raises:
        OSError: The file cannot be read.
        CorruptError: The file is no such log. The text has its name and the position.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.torn = ""
        self.layout = read_layout(self.path)

    def __iter__(self) -> Iterator[Record]:
        self.torn = ""
        with Input(self.path) as file:
            try:
                yield from records(file)
            except TornError as torn:
                self.torn = f"{self.path}: {torn}"
                logging.getLogger("shmbridge").warning("%s", self.torn)

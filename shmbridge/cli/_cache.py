"""Keeps a model's answers in a file: `shmbridge serve --cache`."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from shmbridge._host.request import Request, by_name
from shmbridge._host.service import Model
from shmbridge.errors import CorruptError
from shmbridge.serdes._core import Core


class CachedModel:
    """A model that is asked once for each question: names, dtypes, shapes and values of the
    features, and the wanted dtype. Errors are not kept. Several processes may share the file.

    Args:
        model: A function of one request. Its advice must depend on the request only.
        path: An SQLite database, made if it is missing: the SHA-256 of each question, and its
            advice as FlatBuffers.

    Raises:
        CorruptError: The file is something else, or cannot be opened.
    """

    def __init__(self, model: Model, path: Path) -> None:
        self._model: Any = model
        self._format = Core("flatbuffers")
        try:
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS advice (question BLOB PRIMARY KEY, advice BLOB)"
            )
        except sqlite3.DatabaseError as error:
            raise CorruptError(
                f"{path}: expected a cache of shmbridge serve, found: {error}"
            ) from error

    def __call__(self, request: Request) -> dict[str, Any]:
        asked = self._format.encode_request(dict(request), request.wanted)
        question = hashlib.sha256(asked).digest()
        row = self._file.execute(
            "SELECT advice FROM advice WHERE question = ?", (question,)
        ).fetchone()
        if row:
            return dict(self._format.decode_advice(row[0], None))
        advice = by_name(self._model(request))
        kept = self._format.encode_advice(advice)
        with suppress(sqlite3.OperationalError):  # a full disk, or another's lock: ask again later
            self._file.execute("INSERT OR IGNORE INTO advice VALUES (?, ?)", (question, kept))
        return advice

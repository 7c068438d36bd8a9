"""What compilations without advice score, kept from one run of a trainer to the next."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from shmbridge.errors import InvalidError, write_whole


class Baselines:
    """Scores by key: in memory, and in a JSON file where there is one, which several trainers may
    share."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else Path(path)
        self._known = self._load()

    def _load(self) -> dict[str, dict[str, float]]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            known = json.loads(self._path.read_bytes())
            return {
                str(key): {n: float(v) for n, v in found.items()} for key, found in known.items()
            }
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidError(
                f"{self._path}: expected the JSON file of baselines, found {error}: remove it"
            ) from None

    def get(self, key: str) -> dict[str, float] | None:
        return self._known.get(key)

    def put(self, key: str, scores: dict[str, float]) -> None:
        """Keeps scores, beside those that others have written meanwhile."""
        self._known[key] = scores
        if self._path is None:
            return
        folder = os.open(self._path.absolute().parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self._known = {**self._load(), **self._known}
            write_whole(self._path, json.dumps(self._known, indent=1).encode())
        finally:
            os.close(folder)

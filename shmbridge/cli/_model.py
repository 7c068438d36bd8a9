"""The Python function that a command line names as its model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from shmbridge.errors import InvalidError
from shmbridge.runners.python import load


def load_python(place: str, option: str = "--python") -> Callable[[Mapping[str, Any]], Any]:
    """The function that "module:function" or "/folder/file.py:function" names; the current
    directory is searched first. InvalidError: why not, with the option that named it."""
    # Python takes its own copy for a file of the same size and second: an edited policy would not
    # be read again.
    sys.dont_write_bytecode = True
    try:
        return load(place, os.getcwd())
    except InvalidError as error:
        raise InvalidError(f"{option} {error}") from error

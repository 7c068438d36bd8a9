"""Plug-ins: what stands behind a URL's scheme, and SerDes, found by their names.

shmbridge's own are modules `shmbridge.GROUP.NAME` that hold a `PLUGIN`; others' are entry points of the group
`shmbridge.GROUP`, whose name is the scheme or the SerDes. GROUP is "hosts" (a subclass of `shmbridge.Host`), "runners" (a
subclass of `shmbridge.runners.RunnerKind`) or "serdes" (a subclass of `shmbridge.serdes.SerDes`).
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import Any

from shmbridge.errors import UnsupportedError


def _own(group: str) -> list[str]:
    package = importlib.import_module(f"shmbridge.{group}")
    return [module.name for module in pkgutil.iter_modules(package.__path__)]


def names(group: str) -> list[str]:
    """Every plug-in of a group, built in or installed, sorted."""
    return sorted({*_own(group), *entry_points(group=f"shmbridge.{group}").names})


def find(group: str, name: str) -> Any:
    """The plug-in of that name, imported now. UnsupportedError lists those there are."""
    if name in _own(group):
        return importlib.import_module(f"shmbridge.{group}.{name}").PLUGIN
    for entry in entry_points(group=f"shmbridge.{group}", name=name):
        return entry.load()
    raise UnsupportedError(f"no {group} plug-in is called {name!r}: expected one of {', '.join(names(group))}")

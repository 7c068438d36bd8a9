"""Options that hosts and runners have, as Python, URLs and command lines write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from shmbridge._native import lib
from shmbridge.errors import InvalidError

Wait: TypeAlias = Literal["adaptive", "spin", "block"]
WAITS = {
    "adaptive": lib.SHMB_WAIT_ADAPTIVE,
    "spin": lib.SHMB_WAIT_SPIN,
    "block": lib.SHMB_WAIT_BLOCK,
}


def wait_code(wait: str) -> int:
    """The C constant of a way to wait."""
    try:
        return int(WAITS[wait])
    except KeyError:
        raise InvalidError(f"wait={wait!r}: expected {', '.join(WAITS)}") from None


def _number(text: str, units: dict[str, float], expected: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?)([A-Za-z]*)", text)
    if not found or found[2] not in units:
        raise InvalidError(f"{text}: expected {expected}")
    return float(found[1]) * units[found[2]]


def byte_count(text: str) -> int:
    """A number of bytes, as 65536, 64K or 1M. InvalidError."""
    expected = "a number of bytes, as 65536, 64K or 1M"
    count = _number(text, {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}, expected)
    if not count or count % 1:
        raise InvalidError(f"{text}: expected {expected}")
    return int(count)


def seconds(text: str) -> float:
    if text == "inf":
        return math.inf
    units = {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6}
    return _number(text, units, "seconds, as 0.5, 50ms, 10us or inf")


def whole(text: str) -> int:
    if not text.isdecimal():
        raise InvalidError(f"{text}: expected a whole number")
    return int(text)


OF_URL: dict[str, Callable[[str], Any]] = {
    "channels": whole,
    "slots": whole,
    "request_bytes": byte_count,
    "advice_bytes": byte_count,
    "header_bytes": byte_count,
    "wait": str,
    "deadline": seconds,
    "until_idle": seconds,
}


def of_host_url(query: str) -> dict[str, Any]:
    """What stands behind the "?" of a host's URL. InvalidError."""
    chosen: dict[str, Any] = {}
    for name, _, text in (part.partition("=") for part in query.split("&") if part):
        if name not in OF_URL:
            raise InvalidError(f'unknown option "{name}": expected one of {", ".join(OF_URL)}')
        try:
            chosen[name] = OF_URL[name](text)
        except InvalidError as error:
            raise InvalidError(f"{name}={error}") from None
    return chosen

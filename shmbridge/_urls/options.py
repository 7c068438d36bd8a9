"""Options of hosts and runners, as Python, URLs and command lines write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from shmbridge._native import ffi, lib
from shmbridge.errors import InvalidError

Wait: TypeAlias = Literal["adaptive", "spin", "block"]
WAITS = {
    "adaptive": lib.SHMB_WAIT_ADAPTIVE,
    "spin": lib.SHMB_WAIT_SPIN,
    "block": lib.SHMB_WAIT_BLOCK,
}


def wait_code(wait: str) -> int:
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


def split(url: str) -> tuple[str, dict[str, str]]:
    """What is before the "?" of a URL, and its options."""
    where, _, query = url.partition("?")
    return where, dict(part.partition("=")[::2] for part in query.split("&") if part)


def _option(default: Any, parse: Callable[[str], Any]) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True)
class HostOptions:
    """The options of `Host`, of host URLs and of `shmbridge serve`, with their defaults."""

    channels: int = _option(16, whole)
    slots: int = _option(8, whole)
    request_bytes: int = _option(1 << 20, byte_count)
    advice_bytes: int = _option(1 << 16, byte_count)
    header_bytes: int = _option(1 << 15, byte_count)
    wait: Wait = _option("adaptive", str)
    deadline: float | None = _option(None, seconds)
    until_idle: float | None = _option(None, seconds)
    dir: str | None = _option(None, str)

    def __post_init__(self) -> None:
        """A text is parsed, in Python as in a URL: request_bytes="64K". InvalidError."""
        for each in fields(self):
            text, parse = getattr(self, each.name), each.metadata["parse"]
            try:
                object.__setattr__(self, each.name, parse(text) if isinstance(text, str) else text)
            except InvalidError as error:
                raise InvalidError(f"{each.name}={error}") from None
        if self.deadline is not None and not self.deadline > 0:
            raise InvalidError(f"deadline={self.deadline!r}: expected seconds, more than 0")

    def with_options(self, given: dict[str, str]) -> HostOptions:
        """These, except for the options of a host's URL. InvalidError."""
        names = [each.name for each in fields(self)]
        for name in given:
            if name not in names:
                raise InvalidError(f'unknown option "{name}": expected one of {", ".join(names)}')
        return replace(self, **given)  # type: ignore[arg-type]

    def plan(self) -> Any:
        """The segment's sizes, as a shmb_plan *. InvalidError."""
        sizes = {name: getattr(self, name) for name, _ in ffi.typeof("shmb_plan").fields}
        try:
            return ffi.new("shmb_plan *", sizes)
        except (OverflowError, TypeError) as error:
            raise InvalidError(
                f'channels, slots and bytes must be whole numbers, or texts such as "64K": {error}'
            ) from None

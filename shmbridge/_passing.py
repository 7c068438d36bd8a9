"""Requests for what hands them on, as trainers and relays do."""

from __future__ import annotations

from shmbridge._native import ffi, lib
from shmbridge._request import Request
from shmbridge.errors import ShmbridgeError


def channel_of(request: Request) -> int:
    """The channel that its runner has, for as long as that is connected."""
    return int(request._place_in_segment() >> lib.SHMB_KEY_SLOT_BITS)


def awaits(request: Request) -> bool:
    """Has it no answer yet?"""
    return request._open


def has_runner(request: Request) -> bool:
    """Does the runner still wait for its answer?"""
    return bool(lib.shmb_host_message(request._h, request._key) != ffi.NULL)


def pass_on(request: Request, error: Exception) -> None:
    """Answers, unless that is done, with an error whose status the runner gets too."""
    if request._open:
        request._fail(
            error.status if isinstance(error, ShmbridgeError) else lib.SHMB_MODEL, str(error)
        )

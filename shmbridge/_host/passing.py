"""Requests for what hands them on, as trainers and relays do."""

from __future__ import annotations

from shmbridge._host.request import Request
from shmbridge._native import lib
from shmbridge.errors import ShmbridgeError


def channel_of(key: int) -> int:
    """The channel that a request came through, which is its runner's as long as that is connected."""
    return int((key & lib.SHMB_KEY_PLACE) >> lib.SHMB_KEY_SLOT_BITS)


def pass_on(request: Request, error: Exception) -> None:
    """Answers, unless that is done, with an error whose status the runner gets too."""
    if request._open:
        request._fail(
            error.status if isinstance(error, ShmbridgeError) else lib.SHMB_MODEL, str(error)
        )

"""Sleeping and waking (wait.c, ring.h) under TSO: stores wait in a buffer, loads overtake them, a
fence empties it.

The slices that bound every sleep are left out: what they would mend must not happen in the first
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explore import explore

MESSAGES = 3


class State(NamedTuple):
    stamp: int = 0
    asleep: int = 0
    bell: int = 0  # the semaphore
    waker: tuple[str, int] = ("stamp", 0)  # where it is, messages sent
    waker_stores: tuple[tuple[str, int], ...] = ()  # not yet visible
    sleeper: tuple[str, int] = ("look", 0)  # where it is, messages taken
    sleeper_stores: tuple[tuple[str, int], ...] = ()


def load(name: str, memory: int, stores: tuple[tuple[str, int], ...]) -> int:
    """The newest of one's own stores, else what is in memory."""
    return next((value for stored, value in reversed(stores) if stored == name), memory)


def drained(s: State) -> Iterator[State]:
    """One store of either side becomes visible."""
    for who in ("waker_stores", "sleeper_stores"):
        stores = getattr(s, who)
        if stores:
            yield s._replace(**{stores[0][0]: stores[0][1], who: stores[1:]})


def waker(s: State, fence: bool) -> Iterator[State]:
    """ring_push and waiter_wake: stamp, fence, read the flag, post if it is raised."""
    at, sent = s.waker
    if at == "stamp" and sent < MESSAGES:
        yield s._replace(
            waker=("flag", sent + 1), waker_stores=(*s.waker_stores, ("stamp", sent + 1))
        )
    elif at == "flag" and not (fence and s.waker_stores):
        yield s._replace(waker=("post" if load("asleep", s.asleep, ()) else "stamp", sent))
    elif at == "post":
        yield s._replace(waker=("stamp", sent), bell=s.bell + 1)


def sleeper(s: State, fence: bool) -> Iterator[State]:
    """sleep_for_news: look, raise the flag, fence, look again, sleep, lower the flag."""
    at, taken = s.sleeper
    news = s.stamp > taken
    if at == "look" and taken < MESSAGES:
        if news:
            yield s._replace(sleeper=("look", taken + 1))
        else:
            yield s._replace(
                sleeper=("look again", taken), sleeper_stores=(*s.sleeper_stores, ("asleep", 1))
            )
    elif at == "look again" and not (fence and s.sleeper_stores):
        yield s._replace(sleeper=("lower" if news else "sleep", taken))
    elif at == "sleep" and s.bell:
        yield s._replace(sleeper=("lower", taken), bell=s.bell - 1)
    elif at == "lower":
        yield s._replace(sleeper=("look", taken), sleeper_stores=(*s.sleeper_stores, ("asleep", 0)))


def lost(waker_fence: bool, sleeper_fence: bool) -> set[State]:
    """The ends in which someone sleeps though all messages were sent."""
    _, ends = explore(
        State(), lambda s: [*drained(s), *waker(s, waker_fence), *sleeper(s, sleeper_fence)]
    )
    assert ends
    return {s for s in ends if s.sleeper[1] < MESSAGES}


def test_no_wake_up_is_lost_with_both_fences() -> None:
    assert not lost(True, True)


def test_without_the_wakers_fence_a_wake_up_is_lost() -> None:
    assert lost(False, True)


def test_without_the_sleepers_fence_a_wake_up_is_lost() -> None:
    assert lost(True, False)

"""Claim, reset and READY (shm.c, host_channel.c) with claimers that may die before each step.

A claimer takes the channel's lock, publishes the next generation, waits for READY, sends, and
leaves or dies; then another comes. The kernel drops the lock of a dead one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from explore import explore

CLAIMERS = 4
FREE, CLAIMED = 0, 1


class Claimer(NamedTuple):
    at: str = "lock"
    generation: int = 0
    sent: int = 0


class Descriptor(NamedTuple):
    stamp: int = 0
    generation: int = 0
    author: int = -1


class Host(NamedTuple):
    at: str = "look"
    seen: tuple[int, int] = (0, FREE)
    active: bool = False
    generation: int = 0
    position: int = 0


class State(NamedTuple):
    claimers: tuple[Claimer, ...] = (Claimer(),) * CLAIMERS
    lock: int = -1  # who holds it
    claim: tuple[int, int] = (0, FREE)
    ready: int = 0  # the generation that the host has made ready
    ring: tuple[Descriptor, Descriptor] = (Descriptor(), Descriptor())
    host: Host = Host()
    published: tuple[int, ...] = ()  # who claimed, in order
    wrong: str = ""


def put(s: State, i: int, claimer: Claimer) -> State:
    return s._replace(claimers=(*s.claimers[:i], claimer, *s.claimers[i + 1 :]))


def claim(s: State, i: int, bump: bool) -> Iterator[State]:
    c = s.claimers[i]
    g = c.generation
    if c.at == "lock" and s.lock < 0:
        yield put(
            s._replace(lock=i),
            i,
            c._replace(at="publish", generation=s.claim[0] + (1 if bump or not s.claim[0] else 0)),
        )
    elif c.at == "publish":
        yield put(
            s._replace(claim=(g, CLAIMED), published=(*s.published, i)), i, c._replace(at="wait")
        )
    elif c.at == "wait" and s.ready == g:
        yield put(s, i, c._replace(at="fill"))
    elif c.at == "fill" and c.sent < 2:
        ring = list(s.ring)
        ring[c.sent] = ring[c.sent]._replace(generation=g, author=i)
        yield put(s._replace(ring=(ring[0], ring[1])), i, c._replace(at="stamp"))
    elif c.at == "stamp":
        ring = list(s.ring)
        ring[c.sent] = ring[c.sent]._replace(stamp=c.sent + 1)
        yield put(s._replace(ring=(ring[0], ring[1])), i, c._replace(at="fill", sent=c.sent + 1))
    elif c.at == "fill":
        yield put(s._replace(claim=(g, FREE)), i, c._replace(at="unlock"))
    if c.at not in ("lock", "gone"):  # dies here; "unlock" is the same
        yield put(s._replace(lock=-1), i, c._replace(at="gone"))


def host(s: State) -> Iterator[State]:
    h = s.host
    if h.at == "look" and s.claim != h.seen:
        generation, state = s.claim
        after = h._replace(seen=s.claim, active=False)
        yield s._replace(
            host=after._replace(at="reset", generation=generation) if state == CLAIMED else after
        )
    if h.at == "reset":
        ring = (s.ring[0]._replace(stamp=0), s.ring[1]._replace(stamp=0))
        yield s._replace(ring=ring, host=h._replace(at="ready", position=0))
    if h.at == "ready":
        yield s._replace(ready=h.generation, host=h._replace(at="look", active=True))
    if (
        h.at == "look"
        and h.active
        and h.position < 2
        and s.ring[h.position].stamp == h.position + 1
    ):
        d = s.ring[h.position]
        wrong = s.wrong
        if d.generation != h.generation:
            wrong = wrong or "an honest descriptor was refused"
        elif d.author != owner_of(s, h.generation):
            wrong = wrong or "a dead claim's descriptor was accepted"
        yield s._replace(wrong=wrong, host=h._replace(position=h.position + 1))


def owner_of(s: State, generation: int) -> int:
    """Who published the claim of that generation: the last one, had it been published twice."""
    owners = [i for i in s.published if s.claimers[i].generation == generation]
    return owners[-1] if owners else -1


def faults(bump: bool) -> set[str]:
    """What goes wrong in any of the reachable states."""
    seen, ends = explore(
        State(),
        lambda s: (
            [] if s.wrong else [*host(s), *(t for i in range(CLAIMERS) for t in claim(s, i, bump))]
        ),
    )
    found = {s.wrong for s in seen if s.wrong}
    for s in seen:
        owners = [i for i, c in enumerate(s.claimers) if c.at in ("fill", "stamp")]
        if len(owners) > 1:
            found.add("two own the channel")
        if any(s.lock != i for i in owners):
            found.add("one owns the channel without its lock")
        for i in owners:
            stamps = [
                d.stamp
                for d in s.ring
                if d.author == i and d.generation == s.claimers[i].generation
            ]
            if sum(stamp > 0 for stamp in stamps) < s.claimers[i].sent:
                found.add("a message was wiped out after READY")
    if any(not s.wrong and any(c.at != "gone" for c in s.claimers) for s in ends):
        found.add("a claimer waits for ever")
    return found


def test_no_two_runners_own_a_channel_and_no_dead_claim_is_heard() -> None:
    assert faults(bump=True) == set()


@pytest.mark.parametrize(
    "fault", ["a message was wiped out after READY", "a dead claim's descriptor was accepted"]
)
def test_without_a_new_generation_for_each_claim_it_goes_wrong(fault: str) -> None:
    assert fault in faults(bump=False)
